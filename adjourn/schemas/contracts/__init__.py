"""Everything that depends on pydantic's core schemas, which are not a stable interface.

`docs/decisions/schema_rewriting.md` says why each piece is needed.
"""
