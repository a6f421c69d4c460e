"""The store in memory: the same functions as `adjourn.store`, with the same results, and no server.

Each module stands for the one of the same name; `tests/simulation/test_conformance.py` holds every
one of them against PostgreSQL. A statement here happens at once and as a whole, as if no other ran
beside it: what two statements do to each other inside PostgreSQL is tested in `tests/store`.
"""
