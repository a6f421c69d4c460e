"""The store in memory and the one on PostgreSQL are the same: driven side by side, they never differ.

Both are given the same random steps, stale and senseless ones among them. After each step the results
are compared and so is everything that is stored. PostgreSQL's clock is set by hand, so times are
compared like all else.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, cast, get_type_hints

import pytest
import sqlalchemy as sa

from adjourn.schemas.errors import AdjournError
from adjourn.schemas.internal.state import Claim, End, Park, Requeue, Write
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import Child, NewAction, OnTimeout, Origin
from adjourn.schemas.records.answers import Issue
from adjourn.schemas.records.ids import new_action_id
from adjourn.schemas.records.items import (
    EndItem,
    FaultItem,
    GivenAnswer,
    ItemBody,
    MemoItem,
    OutputItem,
    ReopeningItem,
    ResponseItem,
    RunFailure,
    StartItem,
    SuspensionItem,
)
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ToolCall, Usage
from adjourn.schemas.records.runs import WakeUp
from adjourn.store import protocol
from adjourn.store.memory.store import MemoryStore
from adjourn.store.memory.tables import Memory
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.store import PostgresStore
from adjourn.store.results import Overdue
from tests.simulation.stored import stored_in_memory, stored_in_postgres

SEEDS = 10
STEPS = 160
TUNING = Tuning(
    suspect_deaths=1,
    dead_letter_bytes=3,
    dead_letters_kept=3,
    early_answers_per_action=2,
    early_answers_kept=5,
    early_answer_days=0.001,
)
LEASE, WAKEUP_RETRY, LIMIT = TUNING.lease_seconds, TUNING.wakeup_retry_seconds, 100
RUNS_AT_ONCE = 4
PAUSES = (0, 1, 10, 35, 70, 700)
HAND_SET_CLOCK = sa.text("""
create or replace function adjourn.adjourn_now() returns timestamptz language sql volatile
return cast(current_setting('simulation.now') as timestamptz)
""")
SET_CLOCK = sa.text("select set_config('simulation.now', :now, false)")


class Pair:
    """The two stores, and a dice that says what is done to them."""

    def __init__(self, db: Database, seed: int) -> None:
        self.db, self.memory, self.dice = db, Memory(db.tuning, key=db.signing_key()), random.Random(seed)
        self.stores = PostgresStore(db), MemoryStore(self.memory)
        self.memory.tick = timedelta(0)
        self.claims: list[Claim] = []
        """All that were ever made: most of them are stale."""
        self.named = 0
        db.execute(HAND_SET_CLOCK, {})
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        self.memory.now += timedelta(seconds=seconds)
        self.db.execute(SET_CLOCK, {"now": self.memory.now.isoformat()})

    def both(self, act: str, *args: Any, **kwargs: Any) -> Any:
        """Do it to both stores, see that they return the same, and return it."""
        real, simulated = (outcome(attrgetter(act)(store), *args, **kwargs) for store in self.stores)
        assert told(simulated) == told(real), act
        return real

    def name(self, kind: str) -> str:
        self.named += 1
        return f"{kind}_{self.named}"

    def some(self, things: Any) -> Any:
        """One of them, or what does not exist."""
        things = list(things)
        return self.dice.choice(things) if things and self.dice.random() < 0.95 else "nothing"

    # --- steps -----------------------------------------------------------------------------------

    def step(self) -> None:
        [step] = self.dice.choices([*WEIGHTS_OF_STEPS], [*WEIGHTS_OF_STEPS.values()])
        step(self)
        assert stored_in_memory(self.memory) == stored_in_postgres(self.db)

    def start(self) -> None:
        if sum(not run.ended for run in self.memory.runs.values()) >= RUNS_AT_ONCE:
            return
        new = self.dice.random() < 0.4 or not self.memory.threads
        self.both(
            "runs.start",
            run_id=self.some(self.memory.runs) if self.dice.random() < 0.1 else self.name("run"),
            thread_id=self.name("thread") if new else self.some(self.memory.threads),
            agent="agent",
            text="gö",
            limits=self.dice.choice([None, Limits(turns=3)]),
            enqueue=self.dice.random() < 0.5,
        )

    def claim(self) -> None:
        due = [run.id for run in self.memory.runs.values() if run.status == "queued" and run.due]
        run_id = self.some(due if due and self.dice.random() < 0.9 else self.memory.runs)
        old = self.dice.random() < 0.1 and self.claims
        token = self.dice.choice(self.claims).token if old else self.name("token")
        suspect = self.dice.random() < 0.3
        if run_id in self.memory.runs and self.dice.random() < 0.8:
            suspect = self.memory.runs[run_id].due == "suspect"
        place = self.dice.choice([None, None, 1, 2, self.memory.places])
        claim = self.both("claims.claim", run_id, suspect=suspect, token=token, place=place)
        if claim is not None:
            self.claims.append(claim)

    def reload(self) -> None:
        if self.claims:
            claim = self.both("claims.reload", self.a_claim())
            if isinstance(claim, Claim) and self.dice.random() < 0.5:
                self.claims.append(claim)

    def a_claim(self) -> Claim:
        current = [claim for claim in self.claims if self.memory.runs[claim.run.id].token == claim.token]
        return self.dice.choice(current if current and self.dice.random() < 0.8 else self.claims)

    def write(self) -> None:
        if not self.claims:
            return
        claim = self.a_claim()
        becomes = self.dice.choice([None, None, Park(), Park(), Park(), self.dice.choice(ENDS), *REQUEUES])
        opened: tuple[NewAction, ...] = ()
        if not isinstance(becomes, End):
            opened = tuple(self.new_action(claim) for _ in range(self.dice.choice([0, 1, 1, 2])))
        if becomes is None and self.dice.random() < 0.5:
            opened = tuple(action.model_copy(update={"child": self.new_child(claim)}) for action in opened)
        elif len(opened) > 1 and self.dice.random() < 0.6:
            opened = tuple(action.model_copy(update={"any_of": opened[0].id}) for action in opened)
        items: list[ItemBody] = [*self.dice.sample(ITEMS_OF_A_WRITE, self.dice.choice([0, 1, 2]))]
        items += [SuspensionItem(call_id="call_1", action_id=action.id, name=action.name) for action in opened]
        usage = Usage(
            input_tokens=self.dice.randrange(9),
            output_tokens=1,
            requests=1,
            cost=Decimal(self.dice.randrange(9)) / 1000,
        )
        pause = 0.0 if isinstance(becomes, End) else self.dice.choice([0.0, 0.0, 20.0])
        write = Write(
            items=tuple(items),
            actions=opened,
            usage=usage,
            turns=1,
            tool_calls=2,
            pause_seconds=pause,
            becomes=becomes,
        )
        self.both("claims.write", claim.run.id, claim.token, claim.revision, write)

    def new_action(self, claim: Claim) -> NewAction:
        origin = Origin(
            tool="send",
            wait_point="approval",
            tool_call_id="call_1",
            message_id=f"{claim.run.id}:2",
            run_id=claim.run.id,
            thread_id=claim.run.thread_id,
            block_path=("agent", "send"),
        )
        on_timeouts: list[OnTimeout] = ["error", "fail_run", "default"]
        on_timeout = self.dice.choice(on_timeouts)
        return NewAction(
            id=new_action_id(self.db.signing_key()),
            request_id=self.dice.choice([None, "ticket"]),
            name="send.approval",
            prompt="Send “it”?",
            input={"prompt": "Send it?"},
            resume_schema={"type": "object"},
            origin=origin,
            timeout_seconds=self.dice.choice([None, None, 30.0, 60.0]),
            on_timeout=on_timeout,
            default={"ok": False} if on_timeout == "default" else None,
            style="inline",
            ordinal=0,
            digest="digest",
            fingerprint={"input": "f"},
        )

    def new_child(self, claim: Claim) -> Child:
        return Child(
            run_id=self.name("run"),
            thread_id=self.name("thread"),
            agent="digger",
            key="k",
            digest="d",
            text="dig “here”",
            limits=Limits(turns=2),
            path=("agent", "dig"),
            root_thread_id=claim.run.root_thread_id or claim.run.thread_id,
            depth=claim.run.depth + 1,
            group=self.dice.choice(["one", "two"]),
            ends_parent=self.dice.random() < 0.3,
        )

    def settle(self) -> None:
        unpropagated = self.both("children.unpropagated", LIMIT)
        run_id = self.some(unpropagated if unpropagated and self.dice.random() < 0.8 else self.memory.runs)
        for _ in range(self.dice.choice([1, 2])):
            self.both("children.notify_parent", run_id)
        for orphan, revision in self.both("children.orphans", run_id, LIMIT):
            self.both("runs.close_orphan", orphan, revision - (self.dice.random() < 0.3))
        seq = self.both("children.seq_of", run_id)
        if self.dice.random() < 0.7:
            self.both("children.mark_propagated", run_id, (seq or 1) - (self.dice.random() < 0.2))

    def answer(self) -> None:
        pending = [row.id for row in self.memory.actions.values() if row.status == "pending"]
        status = self.dice.choice(["submitted", "submitted", "cancelled", "failed"])
        self.both(
            "actions.answer",
            action_id=self.some(pending if pending and self.dice.random() < 0.7 else self.memory.actions),
            status=status,
            resume=json.dumps({"ok": "já"}) if status == "submitted" or self.dice.random() < 0.3 else None,
            reason="no" if status == "cancelled" else self.dice.choice([None, "I saw “it”"]),
            message="broken" if status == "failed" else None,
            answer_id=self.dice.choice(["one", "two"]),
            digest=f"digest of {status}",
            answered_by=self.dice.choice([None, 'An "n"']),
            channel=self.dice.choice([None, "client"]),
            fits=self.dice.choice([True, True, True, False]),
            received_at=self.dice.choice([None, None, self.memory.now - timedelta(seconds=40)]),
        )

    def reopen(self) -> None:
        """Of an ended run too: its token is gone, so nothing happens."""
        answered = [row for row in self.memory.actions.values() if row.status == "submitted" and not row.asked.child]
        if not self.claims:
            return
        action_id = self.some(row.id for row in answered)
        held = [claim for claim in self.claims if self.memory.runs[claim.run.id].token == claim.token]
        own = [
            claim
            for claim in held
            if action_id in self.memory.actions and claim.run.id == self.memory.actions[action_id].run_id
        ]
        claim = self.dice.choice(own or self.claims)
        said = GivenAnswer(resume={"ok": "já"}, channel="client")
        item = ReopeningItem(call_id="call_1", action_id=action_id, problem="“broken”", answer=said)
        self.both("claims.reopen", claim.run.id, claim.token, "again", item)

    def cancel(self) -> None:
        reason = self.dice.choice([None, "enough"])
        self.both("runs.cancel", self.some(self.memory.runs), reason=reason, by="ann")

    def record_death(self) -> None:
        held = [run.id for run in self.memory.runs.values() if run.due == "suspect" and run.token]
        self.both(
            "runs.record_death",
            self.some(held or self.memory.runs),
        )

    def record_refusal(self) -> None:
        for run_id, token in self.held()[:1]:
            self.both("runs.record_refusal", run_id, token, "too large")

    def renew(self) -> None:
        self.both("claims.renew", self.held())

    def put_back(self) -> None:
        self.both("claims.put_back", self.held()[:1])

    def builds(self) -> None:
        name, place = self.dice.choice(["old", "new", "newest"]), self.dice.randrange(1, self.memory.places + 2)
        known = self.memory.builds.get(name)
        if self.dice.random() < 0.5:
            self.both("builds.register", name)
        elif known is not None:
            self.both("builds.renew", name, known[0])
        for run_id, token in self.held()[:1]:
            self.both("claims.leave", run_id, token, place)
        self.both("builds.is_outdated", place)
        may = {"suspect": self.dice.random() < 0.5}
        self.both("builds.may_take", self.some(self.memory.runs), self.dice.choice([None, place]), **may)
        self.pass_time(self.dice.choice([0, 0, WAKEUP_RETRY, LEASE]))
        self.both("builds.left", LIMIT)

    def held(self) -> list[tuple[str, str]]:
        some = self.dice.sample(self.claims, min(len(self.claims), 3))
        return [*dict.fromkeys((claim.run.id, claim.token) for claim in some)]

    def unsent(self) -> None:
        self.pass_time(self.dice.choice([0, WAKEUP_RETRY]))
        self.both("recovery.unsent", LIMIT)

    def abandoned(self) -> None:
        self.pass_time(self.dice.choice([0, LEASE]))
        self.both("recovery.abandoned", LIMIT)

    def overdue(self) -> None:
        self.pass_time(self.dice.choice([0, LEASE]))
        self.both("recovery.overdue", LIMIT)

    def make_all_due(self) -> None:
        self.both("recovery.make_all_due")

    def wait(self) -> None:
        self.pass_time(self.dice.choice(PAUSES))

    def early(self) -> None:
        action_id = self.some([*self.memory.actions, "not open yet"])
        awaited = self.dice.random() < 0.5
        fields = {"answered_by": None, "channel": "client" if awaited else None, "awaited": awaited}
        number = self.both("early_answers.keep", action_id=action_id, body="{}", **fields)
        if number is not None and self.dice.random() < 0.3:
            self.both("early_answers.conclude", number, "{}")
            self.both("early_answers.receipt", number)
        kept = self.both("early_answers.of_action", action_id)
        self.both("early_answers.drop", [early.id for early in kept[: self.dice.randrange(2)]])
        self.both("early_answers.for_open_actions", LIMIT)
        self.both("early_answers.for_open_actions", LIMIT, self.dice.randrange(3))
        self.both("early_answers.prune")

    def dead_letter(self) -> None:
        issues = [Issue(path="/a", message="is “wrong”")]
        self.both("dead_letters.add", channel="c", status="invalid", detail="d", body=b"body", issues=issues)
        self.both("dead_letters.prune")
        self.both("dead_letters.list", 2)

    def look(self) -> None:
        run_id, thread_id = self.some(self.memory.runs), self.some(self.memory.threads)
        self.both("runs.get", run_id)
        self.both("runs.items", run_id, self.dice.randrange(4))
        self.both("runs.items_to_show", run_id)
        self.both("runs.list", status=self.dice.choice([None, "parked"]), limit=3)
        self.both("runs.list", thread_id=thread_id)
        self.both("actions.asks_in", run_id)
        self.both("actions.newest_by_request_id", "ticket")
        self.both("actions.get", self.some(self.memory.actions))
        pending = self.both("actions.pending", limit=LIMIT)
        self.both("actions.pending", thread_id=thread_id)
        self.both("actions.pending", run_id=run_id, limit=1)
        self.both("actions.pending_after", self.dice.choice(pending) if pending else None, 2)
        found = [
            row for row in self.memory.actions.values() if (row.asked.request_id, row.status) == ("ticket", "pending")
        ]
        if len(found) <= 2:  # of more, any two are found, in any order
            real, simulated = (sorted(store.actions.find_by_request_id("ticket")) for store in self.stores)
            assert simulated == real
        times = [row.opened_at for row in self.memory.actions.values() if row.asked.request_id]
        if len(set(times)) == len(times):
            self.both("actions.last_by_request_id", "ticket")
        ended = self.dice.choice([*self.memory.actions.values()]) if self.memory.actions else None
        if ended is not None and ended.answer_id is not None:
            self.both("actions.answered_by_request_id", "ticket", ended.answer_id, ended.answer_digest)


WEIGHTS_OF_STEPS = {
    Pair.start: 6,
    Pair.claim: 12,
    Pair.write: 16,
    Pair.answer: 8,
    Pair.settle: 4,
    Pair.reload: 2,
    Pair.renew: 1,
    Pair.put_back: 1,
    Pair.builds: 6,
    Pair.record_death: 2,
    Pair.record_refusal: 2,
    Pair.cancel: 1,
    Pair.unsent: 1,
    Pair.abandoned: 3,
    Pair.overdue: 2,
    Pair.reopen: 2,
    Pair.make_all_due: 1,
    Pair.wait: 2,
    Pair.early: 1,
    Pair.dead_letter: 1,
    Pair.look: 1,
}
FAILURE = RunFailure(type="SomeError", message="“broken”", data={"why": "ß"})
ENDS = [End(status="completed", output="döne"), End(status="failed", error=FAILURE)]
REQUEUES = [
    Requeue(),
    Requeue(due="reentry"),
    Requeue(after_pause=True),
    Requeue(after_pause=True),
]
ITEMS_OF_A_WRITE: list[ItemBody] = [
    ResponseItem(text="ünïcode", calls=(ToolCall(id="call_1", tool="send", args={"n": [1, None]}),)),
    OutputItem(call_id="call_1", tool="send", outcome="success", content={"ok": [1.5, "é"]}),
    MemoItem(call_id="call_1", key="k", value=None),
    StartItem(call_id="call_1"),
    FaultItem(message="not now"),
    EndItem(status="failed", error=FAILURE),
]


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it returns, or what it raises."""
    try:
        return function(*args, **kwargs)
    except (AdjournError, ValueError) as error:
        return type(error), str(error) if isinstance(error, AdjournError) else ""


def told(result: Any) -> Any:
    """A result, without the order of lists that have none."""
    if isinstance(result, Overdue):
        return told(result.wakeups), sorted(result.action_ids)
    if isinstance(result, list) and result and isinstance(result[0], WakeUp):
        return sorted(result, key=lambda wakeup: wakeup.run_id)
    return result


@pytest.fixture
def one_connection(database_url: str) -> Iterator[Database]:
    """The hand-set clock belongs to a connection."""
    db = Database(database_url, TUNING, pool_size=1)
    yield db
    db.dispose()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_two_stores_do_not_differ(one_connection: Database, seed: int) -> None:
    pair = Pair(one_connection, seed)
    for _ in range(STEPS):
        pair.step()


@pytest.mark.parametrize(("store", "asked_of_it"), [(PostgresStore, protocol.Store), (MemoryStore, protocol.RunStore)])
def test_the_methods_of_a_store_are_called_as_the_protocol_says(store: Any, asked_of_it: Any) -> None:
    made = store(cast(Any, None))
    for capability in filter(partial(hasattr, asked_of_it), protocol.CAPABILITIES):
        asked = get_type_hints(getattr(asked_of_it, capability).fget)["return"]
        for name, method in inspect.getmembers(asked, inspect.isfunction):
            if not name.startswith("_"):
                assert arguments(getattr(getattr(made, capability), name)) == arguments(method)[1:], name


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
