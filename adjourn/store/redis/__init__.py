"""Redis: the parking index, live events, and the transport of the queues. All of it may be lost."""
