"""pydantic's core schemas, rewritten so that a value comes back as it went.

`docs/decisions/schema_rewriting.md` says why.
"""
