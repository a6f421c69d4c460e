"""Adjourn with one safeguard taken out, to show that the sweep would notice.

`python -m tests.crash.mutations [--json FILE]` breaks each safeguard in turn, inside the forked processes and
nowhere else, runs the trials that it should show in, and prints what they found. A mutation that
nothing is found of is a hole in the sweep: exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Final

import sqlalchemy as sa

import adjourn.tasks.answers.answering as answering
import adjourn.worker.broker.resume_consumer as reading
import adjourn.worker.process.sweep_loop as sweeping
from adjourn.schemas.internal.state import Write, Written
from adjourn.schemas.records.items import ResponseItem
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.runs import writes
from adjourn.store.postgres.store import PostgresClaims
from adjourn.store.results import EarlyAnswer
from adjourn.tasks.context.facade import Context
from adjourn.tasks.host.services import Door
from adjourn.tasks.lifecycle.sweep import SweepReport

# Untyped, for what is in them is replaced.
_answering: Any = answering
_sweeping: Any = sweeping
_Claims: Any = PostgresClaims
_Reader: Any = reading.ResumeConsumer
_Context: Any = Context

UNDISTURBED: Final = ""


@dataclass(frozen=True)
class Mutation:
    """One safeguard that is missing."""

    missing: str
    apply: Callable[[], None]
    scenario: str
    at: str
    """`side point`, or the start of it: where to stop the process; empty where an undisturbed trial shows it."""
    finding: str
    """What one of the findings has to say."""
    freeze: bool = False


def _rewrite(module: ModuleType, name: str, *changes: tuple[str, str]) -> None:
    """Change the text of a statement. A text that is not there any more would be a mutation that tests nothing."""
    text = getattr(module, name).text
    for old, new in changes:
        if old not in text:
            raise LookupError(f"{module.__name__}.{name} has no {old!r}: bring the mutation up to date")
        text = text.replace(old, new)
    setattr(module, name, sa.text(text))


def _no_token() -> None:
    for name in ("APPEND", "OPEN", "PARK", "REQUEUE", "REST"):
        _rewrite(writes, name, ("r.id = :run_id and r.token = :token", "r.id = :run_id"))


def _no_counter() -> None:
    _rewrite(writes, "PARK", ("r.revision = :seen_revision", "true"))


def _no_compare_and_set() -> None:
    _rewrite(
        actions,
        "ANSWER",
        ("(select run_id from seen where status = 'pending')", "(select run_id from seen)"),
        ("where a.id = v.target and a.status = 'pending'", "where a.id = v.target"),
    )


def _no_deadline() -> None:
    _rewrite(actions, "ANSWER", ("where run.active and seen.expires_at <= run.received", "where false"))


def _response_after_its_tools() -> None:
    write_now = PostgresClaims.write
    held: dict[str, Write] = {}

    def write(claims: Any, run_id: str, token: str, seen_revision: int, write: Write) -> Written:
        asks = any(isinstance(item, ResponseItem) and item.calls for item in write.items)
        if asks and write.becomes is None:
            held[token] = write
            return Written(status="running", revision=seen_revision, seq=0, at=datetime.now(UTC), bytes=0)
        if (before := held.pop(token, None)) is not None:
            write = replace(
                write,
                items=before.items + write.items,
                usage=before.usage + write.usage,
                turns=before.turns + write.turns,
                tool_calls=before.tool_calls + write.tool_calls,
            )
        return write_now(claims, run_id, token, seen_revision, write)

    _Claims.write = write


def _no_sweep() -> None:
    _sweeping.sweep = lambda door, round: SweepReport()


def _acknowledged_unread() -> None:
    settle = _Reader._settle

    def acknowledge_first(self: Any, message: Any) -> None:
        message.ack()
        settle(self, message)

    _Reader._settle = acknowledge_first


def _early_answer_dropped_first() -> None:
    settle = _answering.receive_early

    def drop_first(door: Door, early: EarlyAnswer) -> None:
        door.store.early_answers.drop([early.id])
        settle(door, early)

    _answering.receive_early = drop_first


def _no_memo() -> None:
    def forget(self: Context, key: str, value: Any, *_: Any) -> None:
        self._memos[key] = value

    _Context._keep = forget


MUTATIONS: Final[dict[str, Mutation]] = {
    "token": Mutation(
        "the check of the claim's token in writes",
        _no_token,
        "plain turn",
        "before worker.turn/sql:writes.APPEND#1",
        "changed what is recorded",
        freeze=True,
    ),
    "counter": Mutation(
        "the check of the counter at the park",
        _no_counter,
        "answer beside work",
        UNDISTURBED,
        "no longer moves",
    ),
    "compare-and-set": Mutation(
        "the compare-and-set of answers",
        _no_compare_and_set,
        "duplicate answer",
        UNDISTURBED,
        "applied twice",
    ),
    "deadline": Mutation(
        "the deadline in the judging of answers",
        _no_deadline,
        "late answer",
        UNDISTURBED,
        "had to be refused",
    ),
    "write order": Mutation(
        "the writing of a response before its tools run",
        _response_after_its_tools,
        "plain turn",
        "after worker.turn/effect:plain#1",
        "for a response that was never recorded",
    ),
    "sweep": Mutation(
        "the sweep",
        _no_sweep,
        "plain turn",
        "after worker.turn/model:plain#1",
        "no longer moves",
    ),
    "acknowledgement": Mutation(
        "the judging of an answer before its acknowledgement",
        _acknowledged_unread,
        "two tools, one gate",
        "before worker.resume/sql:actions.ANSWER#1",
        "never judged",
    ),
    "early answer": Mutation(
        "the judging of an early answer before it is dropped",
        _early_answer_dropped_first,
        "early answer",
        "after worker.turn/sql:early_answers.DROP#1",
        "is lost",
    ),
    "memo": Mutation(
        "the record of run_once",
        _no_memo,
        "run_once",
        UNDISTURBED,
        "run_once ran 2 times",
    ),
}


def main() -> int:
    from tests.crash.mutation_trials import show

    return show()


if __name__ == "__main__":
    sys.exit(main())
