"""The Python client: start runs, answer actions, publish onto the queue."""
