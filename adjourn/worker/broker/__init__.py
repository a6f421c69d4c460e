"""Celery and the queues: transports, and what reads wake-ups and answers."""
