"""Does what the engine decides: drives a run, runs tool bodies, writes."""
