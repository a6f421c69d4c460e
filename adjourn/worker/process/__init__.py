"""A worker process: how it is put together, starts, and stops."""
