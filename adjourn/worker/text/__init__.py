"""Records as text for people and terminals."""
