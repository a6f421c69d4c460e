"""The floor: the cycle written by hand with psycopg and JSON, and nothing else.

Six autocommit statements: start, claim, park, answer, claim, finish. It does what any durable
suspend and resume has to do, and none of what makes one usable: no leases renewed, no schemas, no
refusals, no sweep, no second gate.
"""

from __future__ import annotations

import json
from typing import Any

from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

TABLES = """
create table runs (
    id uuid primary key, thread uuid not null, state text not null, version int not null default 0,
    lease timestamptz, input jsonb, output jsonb, updated_at timestamptz not null default now()
) with (fillfactor = 70);
create table messages (thread uuid not null, seq int not null, body jsonb not null, primary key (thread, seq));
create table pending (
    id uuid primary key, run uuid not null, name text not null, input jsonb not null, status text not null,
    resume jsonb, at timestamptz not null default now()
) with (fillfactor = 70);
"""

START = """
with run as (insert into runs (id, thread, state, input) values (%(id)s, %(id)s, 'queued', %(input)s))
insert into messages (thread, seq, body) values (%(id)s, 0, %(message)s)
"""

CLAIM = """
with run as (
    update runs set state = 'running', version = version + 1, lease = now() + interval '60 s', updated_at = now()
    where id = %(id)s and state = 'queued'
    returning *
)
select run.version,
    (select jsonb_agg(m.body order by m.seq) from messages m where m.thread = run.thread),
    (select jsonb_agg(to_jsonb(p)) from pending p where p.id = %(id)s and p.run = run.id)
from run
"""

PARK = """
with run as (
    update runs set state = 'suspended', version = version + 1, lease = null, updated_at = now()
    where id = %(id)s and version = %(version)s
    returning id, thread
), message as (
    insert into messages (thread, seq, body) select thread, 1, %(message)s from run
)
insert into pending (id, run, name, input, status)
select id, id, 'send_report.approval', %(input)s, 'pending' from run
"""

ANSWER = """
with answered as (
    update pending set status = 'submitted', resume = %(answer)s where id = %(id)s and status = 'pending' returning run
)
update runs set state = 'queued', updated_at = now() from answered where runs.id = answered.run
"""

FINISH = """
with run as (
    update runs set state = 'done', version = version + 1, lease = null, output = %(output)s, updated_at = now()
    where id = %(id)s and version = %(version)s
    returning thread
)
insert into messages (thread, seq, body)
select run.thread, new.seq, new.body from run, unnest(%(places)s::int[], %(bodies)s::jsonb[]) as new(seq, body)
"""


def model(messages: list[Any]) -> dict[str, Any]:
    """The scripted model: one call of the tool, then a sentence about what it returned."""
    last = messages[-1]
    if last["role"] == "user":
        call = {"id": "call_1", "name": "send_report", "args": {"summary": "Q3 revenue is up 4%."}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"role": "assistant", "content": "Report sent: " + json.dumps(last["content"])}


class Floor:
    """One process's side of the floor. Holds no connection while the model is asked."""

    def __init__(self, database_url: str, connections: int) -> None:
        # Connections are dearer to open than to keep, and are told nothing but what psycopg needs.
        settings = {"autocommit": True, "prepare_threshold": 0}
        self._pool = ConnectionPool(
            database_url, min_size=connections, max_size=connections, kwargs=settings, open=True
        )
        self._pool.wait()

    def close(self) -> None:
        self._pool.close()

    def create(self, run_id: str) -> None:
        message = {"role": "user", "content": "Please send the Q3 report."}
        self._do(START, id=run_id, input=Jsonb({"q": "send the report"}), message=Jsonb(message))

    def turn(self, run_id: str) -> None:
        """Claim, ask the model, park."""
        version, messages, _ = self._read(CLAIM, id=run_id)
        said = model(messages)
        asked = {"prompt": said["tool_calls"][0]["args"]["summary"]}
        self._do(PARK, id=run_id, version=version, message=Jsonb(said), input=Jsonb(asked))

    def answer(self, run_id: str, answer: dict[str, Any]) -> None:
        self._do(ANSWER, id=run_id, answer=Jsonb(answer))

    def reenter(self, run_id: str, entered: Any) -> None:
        """Claim, run the tool with its answer (`entered` is called with it first), ask the model, finish."""
        version, messages, pending = self._read(CLAIM, id=run_id)
        answer = pending[0]["resume"]
        entered(answer)
        content = {"approved": answer["approved"], "comment": answer["comment"]}
        output = {"role": "tool", "tool_call_id": "call_1", "content": content}
        said = model([*messages, output])
        bodies = [Jsonb(output), Jsonb(said)]
        self._do(
            FINISH, id=run_id, version=version, output=Jsonb({"text": said["content"]}), places=[2, 3], bodies=bodies
        )

    def _do(self, statement: str, **values: Any) -> None:
        with self._pool.connection() as connection:
            connection.execute(statement, values)

    def _read(self, statement: str, **values: Any) -> Any:
        with self._pool.connection() as connection:
            return connection.execute(statement, values).fetchone()
