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
(select md5(string_agg(found, ' ' order by found)) from (
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
) as definitions (found))
"""
_CLOCK_DEFINITION: Final = f"pg_get_functiondef('{_CLOCK}'::regprocedure)"
_TABLES: Final = f"select oid::regclass::text from pg_class where relkind = 'r' and oid >= {_FIRST_OID} order by oid"
_SEQUENCES: Final = "(select max(setval(seqrelid, seqstart, false)) from pg_sequence)"


class Reset(NamedTuple):
    """What a new copy of the template looks like, and so what a used one has to look like again."""

    look: str
    """The query for everything that is compared: the definitions, the clock, and the tables with rows."""
    found: tuple[Any, ...]
    clock: str
    empty: str
    """The statement that deletes all other rows, and returns how many there were."""

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Self:
        """What this new copy looks like."""
        tables = [str(row[0]) for row in connection.execute(_TABLES)]
        emptied = [table for table in tables if not connection.execute(f"select from {table}".encode()).rowcount]
        digests = [
            f"(select md5(string_agg(t::text, ' ' order by t::text)) from {t} t)" for t in tables if t not in emptied
        ]
        look = f"select {_CLOCK_DEFINITION}, {', '.join([_DEFINITIONS, *digests])}"
        clock, *found = _row(connection, look)
        deletes = [f"t{number} as (delete from {table} returning 1)" for number, table in enumerate(emptied)]
        counts = [f"(select count(*) from t{number})" for number, _ in enumerate(emptied)]
        return cls(
            look, tuple(found), str(clock), f"with {', '.join(deletes)} select {' + '.join(counts)}, {_SEQUENCES}"
        )

    def apply(self, connection: psycopg.Connection[Any]) -> int | None:
        """Make a used database as new. Returns how many rows it had, None if it cannot be made as new."""
        clock, *found = _row(connection, self.look)
        if tuple(found) != self.found:
            return None
        if clock != self.clock:
            connection.execute(self.clock.encode())
        return int(_row(connection, self.empty)[0])


def _row(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(query.encode()).fetchone()
    assert row is not None, "it asks for values, not for rows"
    return row
