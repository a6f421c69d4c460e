"""Events of a thread: to viewers, and from models."""
