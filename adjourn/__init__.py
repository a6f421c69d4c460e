"""Adjourn: a backend worker that runs AI agents on Celery and parks them until an answer comes.

This is the face of the package: users import from here and nowhere else.
"""

__version__ = "0.1.0"
