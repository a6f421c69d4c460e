"""The scenarios: what is done in a trial, as steps of the driver. Each has to end the same wherever it is crashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import sqlalchemy as sa

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.events import Cursor, Event, ParkedEvent, SuspensionEvent
from adjourn.schemas.records.ids import new_thread_id
from adjourn.store.postgres.runs import builds
from adjourn.store.postgres.store import PostgresStore
from adjourn.tasks.streaming.viewer import Viewer
from tests.crash import answer_scenarios as answers
from tests.crash import damage_scenarios as damage
from tests.crash import retry_scenarios as retries
from tests.crash import tree_scenarios as trees
from tests.crash.tools import PAID
from tests.crash.trial import LATE, Trial
from tests.store.steps import tuned

LOOK_SECONDS: Final = 0.02
"""How long a viewer looks at a time."""
NEWER_PLACE, LIVES_SECONDS = 1_000_000, 1e9
"""Of a build that stays newer than the workers', whatever becomes of the clock."""
LEFT = sa.text("select newer_than from adjourn.runs where id = :run_id")
GONE = sa.text("delete from adjourn.builds where id = 'newer'")


@dataclass(frozen=True)
class Scenario:
    """One scenario and what its trials need."""

    name: str
    play: Callable[[Trial], None]
    victim: Literal["worker", "client"] = "worker"
    """Whose points they are. Those of the process of a suspect run count as its worker's."""
    died_before: str | None = None
    """`side point` at which a worker before the one under trial has died."""
    dies_before: bool = False
    """Whether such a worker dies by what its tools do."""
    from_start: bool = False
    """Whether the points of starting up count."""
    leases: int = 0
    restores: int = 0
    tuning: tuple[tuple[str, float], ...] = ()
    redis_only: bool = False

    def __str__(self) -> str:
        return self.name


def plain(t: Trial) -> None:
    t.ended(t.start("plain"))


def two_tools_one_gate(t: Trial) -> None:
    run = t.start("two_tools_one_gate")
    (action,) = t.parked(run)
    t.answer(action.id)
    t.ended(run)


def three_gates(t: Trial) -> None:
    run = t.start("three_gates")
    for waits in (3, 2, 1):
        t.answer(t.parked(run, waits)[0].id)
    t.ended(run)


def chain_of_three(t: Trial) -> None:
    run = t.start("chain")
    answered: set[str] = set()
    for _ in range(3):
        (action,) = t.until(lambda: [a for a in t.parked(run) if a.id not in answered], "the next wait")
        answered.add(action.id)
        t.answer(action.id)
    t.ended(run)


def declined(t: Trial) -> None:
    run = t.start("gated")
    t.answer(t.parked(run)[0].id, "cancel")
    t.ended(run)


def failed(t: Trial) -> None:
    run = t.start("gated")
    t.answer(t.parked(run)[0].id, "fail")
    t.ended(run)


def entry_style(t: Trial) -> None:
    run = t.start("staged")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def expiry(t: Trial) -> None:
    run = t.start("hurry")
    t.parked(run)
    t.lane.move_clock(LATE)
    t.sweep()
    t.ended(run)


def late_answer(t: Trial) -> None:
    """Past the deadline and before any sweep: it is refused, and expires the action there and then."""
    run = t.start("hurry")
    (action,) = t.parked(run)
    t.lane.move_clock(LATE)
    t.answer(action.id, wanted=False)
    t.ended(run)


def run_once(t: Trial) -> None:
    run = t.start("once")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def client_tool(t: Trial) -> None:
    run = t.start("client_tool")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def early_answer(t: Trial) -> None:
    """The answer overtakes the suspend."""
    run = t.start("announced")
    t.answer(t.reserved(run))
    t.signal(run)
    t.ended(run)


def answer_beside_work(t: Trial) -> None:
    """The answer comes while a sibling still runs: the run must not park on it."""
    run = t.start("beside_slow")
    action = t.asking(run)
    t.working(run, "slow")
    t.answer(action.id)
    t.signal(run)
    t.ended(run)


def answer_in_a_pause(t: Trial) -> None:
    """The answer takes effect while the model beside it is left alone, and before that is asked again."""
    run = t.start("beside_away")
    t.paused(run)
    (action,) = t.pending(run)
    t.answer(action.id)
    t.until(lambda: t.lane.outputs(run), "what the answer led to")
    if t.paused(run):
        t.lane.move_clock(LATE)
        t.sweep()
    t.ended(run)


def enqueue(t: Trial) -> None:
    """A second run waits behind the first one of its thread."""
    thread_id = new_thread_id()
    busy = t.start("gated", thread_id=thread_id)
    (action,) = t.parked(busy)
    behind = t.start("plain", thread_id=thread_id, enqueue=True)
    t.answer(action.id)
    t.ended(busy, behind)


def duplicate_answer(t: Trial) -> None:
    """The same answer once more is a duplicate; another one is late, also while the run still waits for others."""
    run = t.start("three_gates")
    first, *others = t.parked(run, 3)
    t.answer(first.id)
    t.answer(first.id)
    t.answer(first.id, answer_id="second", wanted=False)
    for action in others:
        t.answer(action.id)
    t.ended(run)


def resolver(t: Trial) -> None:
    t.ended(t.start("resolved"))


def not_repeatable(t: Trial) -> None:
    """Whoever is asked what became of an interrupted call looks whether it took effect."""
    run = t.start("pay")
    if t.ended_or_asking(run):
        (action,) = t.parked(run)
        paid = any(row.kind == "effect" for row in t.rows())
        t.answer(action.id, value={"happened": True, "output": PAID} if paid else {"happened": False})
    t.ended(run)


def verified(t: Trial) -> None:
    t.ended(t.start("pay_verified"))


def own_process(t: Trial) -> None:
    """Each pass of a tool runs in a process of its own, which records over the worker and ends with it."""
    run = t.start("apart")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


# --- blocks --------------------------------------------------------------------------------------


def sequence(t: Trial) -> None:
    """Its second step waits."""
    run = t.start("sequence")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def router(t: Trial) -> None:
    """The route that it takes waits."""
    run = t.start("router")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def nested_blocks(t: Trial) -> None:
    """An agent is a step of a sequence, and its tool is a sequence whose second step waits."""
    run = t.start("nested")
    t.answer(t.parked(run)[0].id)
    t.ended(run)


def policy_approval(t: Trial) -> None:
    """A tool without a wait of its own, whose call a policy holds up."""
    run = t.start("approved")
    t.answer(t.parked(run)[0].id, value={"approved": True})
    t.ended(run)


# --- viewers ---------------------------------------------------------------------------------------


def stream_reader(t: Trial) -> None:
    """Somebody who has nothing but the stream, answers by it, and in the end has seen what is recorded."""
    thread_id = new_thread_id()
    run = t.start("chain", thread_id=thread_id)
    viewer = Viewer(PostgresStore(t.lane.db), t.lane.events, thread_id, Cursor())
    seen: list[Event] = []

    def look() -> list[Event]:
        seen.extend(viewer.read(LOOK_SECONDS))
        return seen

    def asked(number: int) -> list[PendingAction]:
        return [event.action for event in look() if isinstance(event, SuspensionEvent)][number:]

    for number in range(3):
        t.answer(t.until(partial(asked, number), "the next wait on the stream")[0].id)
    t.ended(run)
    recorded = list(t.lane.client.thread(thread_id).events(timeout=0))
    t.until(lambda: look()[-1] == recorded[-1], "the end on the stream")
    told = [event for event in seen if not isinstance(event, ParkedEvent)]
    if told != recorded:
        t.faults.append(f"the stream said {[event.id for event in seen]}, and there are {recorded[-1].id} items")


# --- clients that are killed ---------------------------------------------------------------------


def start_by_client(t: Trial) -> None:
    run = t.expect()
    t.client("start", agent="plain", message=run, run_id=run, thread_id=new_thread_id())
    t.ended(run)


def answer_by_client(t: Trial) -> None:
    run = t.start("gated")
    (action,) = t.parked(run)
    t.submit_by_client(action.id)
    t.ended(run)


def cancel_by_client(t: Trial) -> None:
    """Cancels a run that is parked, with another one waiting behind it."""
    thread_id = new_thread_id()
    run = t.start("gated", thread_id=thread_id, ends="cancelled")
    t.parked(run)
    behind = t.start("plain", thread_id=thread_id, enqueue=True)
    t.client("cancel_run", run_id=run)
    t.ended(run, behind)


# --- the sweep, leases, and everything else that repairs -------------------------------------------


def poison(t: Trial) -> None:
    """A tool kills every process that runs it: the worker before, and then those of the suspect run."""
    t.ended(t.start("die", ends="failed"))


def lost_wakeup(t: Trial) -> None:
    run = t.start("plain", wakeup=False)
    t.lane.pass_time()
    t.sweep()
    t.ended(run)


def early_answer_left(t: Trial) -> None:
    """Whoever opened the action died before it looked for answers that had come for it: the sweep does."""
    run = t.start("announced")
    t.answer(t.reserved(run))
    t.signal(run)
    t.ended(run)


def lost_redis(t: Trial) -> None:
    run = t.start("two_tools_one_gate")
    (action,) = t.parked(run)
    t.lane.redis.flushdb()
    t.sweep()
    t.answer(action.id)
    t.ended(run)


def renewal(t: Trial) -> None:
    run = t.start("slow")
    t.working(run, "slow")
    t.passed("claims.RENEW#2")
    t.signal(run)
    t.ended(run)


def shutdown(t: Trial) -> None:
    """A worker that is asked to stop gives its turns back."""
    run = t.start("slow")
    t.working(run, "slow")
    t.terminate()
    t.replaced()
    t.signal(run)
    t.ended(run)


def left_to_a_newer_build(t: Trial) -> None:
    """The worker's build cannot drive the run and leaves it to a newer one, which dies without having taken it."""
    t.begin()
    builds.renew(tuned(t.lane.db, build_seconds=LIVES_SECONDS), "newer", NEWER_PLACE)
    run = t.start("nobody", ends="failed")
    t.until(lambda: t.lane.db.one(LEFT, {"run_id": run}).newer_than is not None, "the run to be left")
    t.settled()
    t.lane.db.execute(GONE, {})
    t.lane.pass_time()
    t.sweep()
    t.ended(run)


QUICK_WAKEUPS: Final = (("wakeup_retry_seconds", 0.5),)
"""Where a wake-up is lost and the clock cannot be moved beside a worker: one of a client that is killed, or one that a
driver gives after a reader was frozen, which still takes it."""

SCENARIOS: Final = (
    Scenario("plain turn", plain),
    Scenario("two tools, one gate", two_tools_one_gate),
    Scenario("three gates", three_gates),
    Scenario("chain of three waits", chain_of_three),
    Scenario("entry style", entry_style),
    Scenario("declined", declined),
    Scenario("failed answer", failed),
    Scenario("expiry", expiry),
    Scenario("late answer", late_answer),
    Scenario("run_once", run_once),
    Scenario("client tool", client_tool),
    Scenario("resolver", resolver),
    Scenario("process of its own", own_process),
    Scenario("not repeatable", not_repeatable),
    Scenario("verified", verified),
    Scenario("retry", retries.retry, tuning=QUICK_WAKEUPS),
    Scenario("retry of a tree", retries.retry_of_a_tree, tuning=QUICK_WAKEUPS),
    Scenario("sequence", sequence),
    Scenario("router", router),
    Scenario("nested blocks", nested_blocks),
    Scenario("policy approval", policy_approval),
    Scenario("child gated", trees.child_gated),
    Scenario("two children", trees.two_children),
    Scenario("quick child", trees.quick_child),
    Scenario("grandchild gated", trees.grandchild_gated),
    Scenario("early answer", early_answer),
    Scenario("answer beside work", answer_beside_work),
    Scenario("answer in a pause", answer_in_a_pause),
    Scenario("enqueue", enqueue),
    Scenario("duplicate answer", duplicate_answer),
    Scenario("stream reader", stream_reader),
    Scenario("kept answer", answers.kept_answer),
    Scenario("kept answer, awaited", answers.kept_answer_awaited),
    Scenario("kept answer, left", answers.kept_answer_left),
    Scenario("kept answer, refused", answers.kept_answer_refused),
    Scenario("kept answer by a client", answers.kept_answer_by_client, victim="client"),
    Scenario("forged parking record", answers.forged_parking_record),
    Scenario("unreadable answer", retries.unreadable_answer, tuning=QUICK_WAKEUPS),
    Scenario(
        "unreadable answer by a client", retries.unreadable_answer_by_client, victim="client", tuning=QUICK_WAKEUPS
    ),
    Scenario("first of two answers", answers.first_of_two),
    Scenario("first of two answers, raced", answers.first_of_two_raced),
    Scenario("reopened wait", retries.reopened_wait, tuning=QUICK_WAKEUPS),
    Scenario("reopened first of two answers", retries.reopened_first_of_two, tuning=QUICK_WAKEUPS),
    Scenario("start taken back", retries.start_taken_back, tuning=QUICK_WAKEUPS),
    Scenario("late beside a default", answers.late_beside_a_default),
    Scenario("late beside an end", answers.late_beside_an_end),
    Scenario("asked anew", answers.asked_anew),
    Scenario("edited approval", answers.edited_approval),
    Scenario("damaged item", damage.damaged_item),
    Scenario("damaged action", damage.damaged_action),
    Scenario("damaged parent", damage.damaged_parent),
    Scenario("damaged child", damage.damaged_child),
    Scenario("damaged deadline", damage.damaged_deadline),
    Scenario("lost wait", damage.lost_wait),
    Scenario("damaged deadline at an answer", damage.damaged_deadline_at_an_answer),
    Scenario("start by a client", start_by_client, victim="client"),
    Scenario("answer by a client", answer_by_client, victim="client"),
    Scenario("cancel by a client", cancel_by_client, victim="client", tuning=QUICK_WAKEUPS),
    Scenario("retry by a client", retries.retry_by_client, victim="client", tuning=QUICK_WAKEUPS),
    Scenario("retry of a tree by a client", retries.retry_of_a_tree_by_client, victim="client", tuning=QUICK_WAKEUPS),
    Scenario("cancel down the tree", trees.cancel_down_the_tree, victim="client", tuning=QUICK_WAKEUPS),
    Scenario("left to a newer build", left_to_a_newer_build, tuning=QUICK_WAKEUPS),
    Scenario("starting up", plain, from_start=True),
    Scenario(
        "suspect run",
        two_tools_one_gate,
        died_before="before worker.turn/sql:writes.APPEND#1",
        tuning=QUICK_WAKEUPS,
    ),
    # A process that outlives its worker has a lease that nobody ends before its time.
    Scenario("poison", poison, dies_before=True, tuning=(("lease_seconds", 2.0), *QUICK_WAKEUPS)),
    Scenario("lost wake-up", lost_wakeup),
    Scenario("early answer left", early_answer_left, died_before="after worker.turn/sql:writes.PARK#1"),
    Scenario(
        "answer taken by a dead reader",
        two_tools_one_gate,
        died_before="after worker.resume/redis:BLMOVE adjourn.resume#1",
        from_start=True,
        restores=1,
        redis_only=True,
    ),
    Scenario("lost Redis", lost_redis, redis_only=True),
    Scenario("renewal of a lease", renewal, leases=2, tuning=(("lease_seconds", 1.5),)),
    Scenario("shutdown", shutdown, tuning=(("shutdown_seconds", 0.2),)),
)
BY_NAME: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in SCENARIOS}


def of_broker(broker: str) -> tuple[Scenario, ...]:
    """The scenarios that this broker can have."""
    return tuple(scenario for scenario in SCENARIOS if broker == "redis" or not scenario.redis_only)
