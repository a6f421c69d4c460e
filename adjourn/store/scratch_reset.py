"""Empties a scratch database, so that it is as new: a copy of the template costs a hundred times as much.

Only what a deployment does is undone: rows, sequences, and the clock that tests move. A database that
was changed in any other way is not reset; its owner drops it.
"""

# ruff: noqa: S608 (statements are put together from constants and from names that PostgreSQL has quoted)

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

import psycopg

_FIRST_OID: Final = 16384
"""PostgreSQL gives smaller ones only to its own objects."""
_CLOCK: Final = "adjourn.adjourn_now()"

# Every definition has a row in one of these, and a row that is changed gets another xmin. A copy keeps the xmins
# of its template. Rows, sequences and the clock are left out: they are reset.
_DEFINITIONS: Final = f"""
select md5(string_agg(found, ' ' order by found)) from (
    select 'class ' || oid || ' ' || xmin from pg_class where oid >= {_FIRST_OID}
    union all select 'column ' || attrelid || ' ' || attnum || ' ' || xmin from pg_attribute
        where attrelid >= {_FIRST_OID}
    union all select 'default ' || oid || ' ' || xmin from pg_attrdef
    union all select 'index ' || indexrelid || ' ' || xmin from pg_index where indexrelid >= {_FIRST_OID}
    union all select 'constraint ' || oid || ' ' || xmin from pg_constraint where oid >= {_FIRST_OID}
    union all select 'trigger ' || oid || ' ' || xmin from pg_trigger
    union all select 'rule ' || oid || ' ' || xmin from pg_rewrite where oid >= {_FIRST_OID}
    union all select 'type ' || oid || ' ' || xmin from pg_type where oid >= {_FIRST_OID}
    union all select 'function ' || oid || ' ' || xmin from pg_proc
        where oid >= {_FIRST_OID} and oid is distinct from to_regprocedure('{_CLOCK}')
    union all select 'schema ' || oid || ' ' || xmin from pg_namespace where oid >= {_FIRST_OID}
        and nspname not like 'pg\\_%'
    union all select 'extension ' || oid || ' ' || xmin from pg_extension
    union all select 'event trigger ' || oid || ' ' || xmin from pg_event_trigger
    union all select 'setting ' || setrole || ' ' || setconfig::text from pg_db_role_setting s
        join pg_database d on d.oid = s.setdatabase where d.datname = current_database()
) as definitions (found)
"""
_TABLES: Final = f"select oid::regclass::text from pg_class where relkind = 'r' and oid >= {_FIRST_OID} order by oid"
_SEQUENCES: Final = "select setval(seqrelid, seqstart, false) from pg_sequence"


class Reset(NamedTuple):
    """What a new copy of the template looks like, and so what a used one has to look like again."""

    definitions: str
    clock: str
    emptied: tuple[str, ...]
    """Tables that are empty in a new copy."""
    kept: tuple[tuple[str, str], ...]
    """Tables that are not, and a digest of their rows."""

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Self:
        """What this new copy looks like."""
        tables = [str(row[0]) for row in connection.execute(_TABLES)]
        digests = {table: _digest(connection, table) for table in tables}
        return cls(
            definitions=_value(connection, _DEFINITIONS),
            clock=_clock(connection),
            emptied=tuple(table for table, digest in digests.items() if not digest),
            kept=tuple((table, digest) for table, digest in digests.items() if digest),
        )

    def apply(self, connection: psycopg.Connection[Any]) -> int | None:
        """Make a used database as new. Returns how many rows it had, None if it cannot be made as new."""
        if _value(connection, _DEFINITIONS) != self.definitions:
            return None
        if any(_digest(connection, table) != digest for table, digest in self.kept):
            return None
        if _clock(connection) != self.clock:
            connection.execute(self.clock.encode())
        connection.execute(_SEQUENCES)
        return sum(connection.execute(f"delete from {table}".encode()).rowcount for table in self.emptied)


def _clock(connection: psycopg.Connection[Any]) -> str:
    return _value(connection, f"select pg_get_functiondef('{_CLOCK}'::regprocedure)")


def _digest(connection: psycopg.Connection[Any], table: str) -> str:
    """Empty for a table without rows. The name is quoted where it has to be: PostgreSQL says it."""
    return _value(connection, f"select md5(string_agg(t::text, ' ' order by t::text)) from {table} t")


def _value(connection: psycopg.Connection[Any], query: str) -> str:
    row = connection.execute(query.encode()).fetchone()
    return str(row[0] or "") if row else ""
