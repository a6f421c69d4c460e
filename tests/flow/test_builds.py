"""Two builds side by side, each with code of its own: only the newest of those that are live fails a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import (
    Agent,
    App,
    Context,
    Router,
    ScriptedModel,
    Sequential,
    SubAgent,
    WaitPoint,
    call,
    say,
    tool,
)
from adjourn.schemas import errors
from adjourn.schemas.errors import CodeMismatchError, DefinitionError, NewerTurnError
from adjourn.schemas.internal.state import Write
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ToolCall
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import builds
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.rules import LEFT_WAKE_UPS
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.host.builds import Build
from tests.store.steps import tuned
from tests.world import World

TUNING = Tuning(lease_seconds=600, build_seconds=60)
YES = {"approved": True}


class Ask(BaseModel):
    prompt: str


class Yes(BaseModel):
    approved: bool


point = WaitPoint("q", suspend=Ask, resume=Yes)


def asker(prompt: str = "May it be?", **options: Any) -> Block:
    @tool(name="ask", wait_points=[point], **options)
    def ask(ctx: Context) -> str:
        """Ask."""
        return f"approved: {ctx.ask(point, Ask(prompt=prompt)).approved}"

    return ask


def awaiting() -> Block:
    @tool(name="ask", wait_points=[point])
    async def ask(ctx: Context) -> str:
        """Ask."""
        asked: Any = ctx.ask  # not seen at the definition, as an await of `ctx.ask(...)` is
        return f"approved: {(await asked(point, Ask(prompt='May it be?'))).approved}"

    return ask


def gate() -> Block:
    @tool(name="gate", wait_points=[point])
    def gate(ctx: Context, text: str) -> str:
        """Ask."""
        return f"{text}: {ctx.ask(point, Ask(prompt=text)).approved}"

    return gate


def remembering(returns: Any, value: Any) -> Block:
    @tool(name="ask", wait_points=[point])
    def ask(ctx: Context) -> str:
        """Remember, and ask."""
        ctx.run_once("n", lambda: value, returns=returns)
        return f"approved: {ctx.ask(point, Ask(prompt='?')).approved}"

    return ask


def stepping(name: str) -> Block:
    @tool(name="ask", wait_points=[point])
    def ask(ctx: Context) -> str:
        """Take a step, and ask."""
        ctx.step(name, lambda: 1)
        return f"approved: {ctx.ask(point, Ask(prompt='?')).approved}"

    return ask


def agent(*tools: Block) -> Agent:
    return Agent("agent", ScriptedModel([call("ask"), say("done")]), tools=tools)


def of(*tools: Block) -> App:
    return App(agents=[agent(*tools)])


def routed(*routes: str) -> App:
    return App(blocks=[Router("agent", {name: gate() for name in routes}, lambda _: routes[0])])


OTHER = Agent("other", ScriptedModel([say("other")]))
MISMATCHES: dict[str, tuple[App, App]] = {
    "UnknownBlockError": (of(asker()), App(agents=[OTHER])),
    "ToolChangedError": (of(asker(version="2", resumes_from=["1"])), of(asker(version="1"))),
    "ReplayMismatchError": (of(stepping("load")), of(stepping("fetch"))),
    "StoredValueError": (of(remembering(int, 1)), of(remembering(list[int], [1]))),
    "BlockChangedError": (of(asker()), App(blocks=[Sequential("agent", [gate()])])),
    "RouteUnavailableError": (routed("a", "b"), routed("c")),
    "AskAwaitedError": (of(asker()), of(awaiting())),
}
"""What the new build runs, and the old one that cannot, by the error that says so."""


@dataclass
class Side:
    """Two builds on one deployment."""

    old: World
    new: World

    def logged(self, run_id: str) -> tuple[str, int, int, int]:
        run = self.old.run(run_id)
        return run.status, run.deaths, run.turns, len(self.old.items(run_id))

    def announced_to(self, world: World) -> None:
        """The next time that what was left is announced, this build takes the wake-ups."""
        self.old.advance(TUNING.wakeup_retry_seconds / LEFT_WAKE_UPS)
        world.sweep()

    def only_new_is_gone(self) -> None:
        self.old.advance(TUNING.build_seconds + 1)
        assert self.old.services.build is not None
        self.old.services.build.renew()


SideBySide = Callable[[App, App], Side]


@pytest.fixture
def side_by_side(database_url: str, redis_url: str) -> Iterator[SideBySide]:
    made: list[World] = []

    def up(app: App, name: str) -> World:
        world = World(app, database_url, redis_url, TUNING)
        made.append(world)
        world.deploy(app, Build(world.store, name))
        world.sweep()  # the first one finds Redis empty, and gives all wake-ups again
        return world

    yield lambda old, new: Side(up(old, "old"), up(new, "new"))
    for world in made:
        world.close()


def parked_for_old(side: Side) -> str:
    """A run that the new build has parked, and whose answer the old one takes; its wake-up is with the old one."""
    run_id = side.new.start("go")
    (action,) = side.new.pending(run_id)
    assert side.old.answer(action, YES, settle=False).status == "accepted"
    return run_id


@pytest.mark.parametrize("error", MISMATCHES)
def test_an_old_build_leaves_what_it_cannot_drive_to_the_newer_one(
    side_by_side: SideBySide, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    new, old = MISMATCHES[error]
    side = side_by_side(old, new)
    run_id = parked_for_old(side)
    before = side.logged(run_id)
    side.old.settle()
    assert side.logged(run_id) == before == ("queued", 0, *before[2:])
    (said,) = [record for record in caplog.records if record.getMessage() == "run left to a newer build"]
    assert (said.__dict__["run_id"], said.__dict__["build"], said.__dict__["error"]) == (run_id, "old", error)

    side.new.advance(TUNING.wakeup_retry_seconds / LEFT_WAKE_UPS)
    assert side.new.sweep().left == 1
    assert side.new.run(run_id).status == "completed", side.new.run(run_id).error


@pytest.mark.parametrize("error", MISMATCHES)
def test_the_newest_build_that_is_live_fails_what_it_cannot_drive(side_by_side: SideBySide, error: str) -> None:
    new, old = MISMATCHES[error]
    side = side_by_side(old, new)
    run_id = parked_for_old(side)
    side.old.settle()
    side.only_new_is_gone()
    side.old.sweep()
    run = side.old.run(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == error


def test_every_mismatch_is_tried() -> None:
    """A new one belongs here.

    What ends no run by itself, what only pydantic-ai says, and what needs a process have tests of their own.
    """
    kinds = {
        name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, CodeMismatchError)
    }
    assert kinds - {"CodeMismatchError", "LogMismatchError", "NewerTurnError", "ToolProcessError"} == set(MISMATCHES)


def test_a_build_that_left_a_run_is_not_given_it_again_and_does_not_spin(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    run_id = side.old.enqueue("go").run_id
    side.old.settle()
    statements: list[str] = []
    side.old.db.watch = statements.append
    for _ in range(5):
        side.old.wakeups.publish(WakeUp(run_id=run_id, due="reentry"))
        side.old.settle()
    assert len(statements) == 5, "a wake-up of a run that was left is one statement, which claims nothing"
    side.old.db.watch = None
    assert not side.old.wakeups.waiting
    before = len(side.old.wakeups.published)
    for _ in range(10):
        side.old.sweep()
    assert len(side.old.wakeups.published) - before <= 1, "announced once in a while, not in every sweep"
    assert side.old.run(run_id).status == "queued"


def test_a_new_run_goes_on_with_the_new_build_in_every_turn(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    run_id = side.old.enqueue("go").run_id
    side.old.settle()
    for _ in range(6):
        side.announced_to(side.old)
        side.announced_to(side.new)
        if side.new.pending(run_id):
            side.old.answer(side.new.the_action(run_id), YES)
    assert side.new.run(run_id).status == "completed"
    assert side.new.run(run_id).turns == 2


def test_what_no_live_build_knows_is_failed_by_the_newest(side_by_side: SideBySide) -> None:
    """Two projects that share a deployment by mistake."""
    side = side_by_side(App(agents=[OTHER]), App(agents=[Agent("third", ScriptedModel([say("third")]))]))
    run_id = side.old.enqueue("go", agent="nobody's").run_id
    side.old.settle()
    assert side.old.run(run_id).status == "queued"
    side.new.wakeups.publish(side.old.wakeups.published[-1])
    side.new.settle()
    run = side.new.run(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "UnknownBlockError"


def test_two_projects_each_get_their_runs_whichever_is_newer(side_by_side: SideBySide) -> None:
    """Each run on the worker that took its wake-up, or left by the older project to the newer one."""
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    assert side.old.run(side.old.start("go", agent="other")).status == "completed"
    run_id = side.old.start("go")
    side.new.wakeups.waiting.extend(side.old.wakeups.published[-1:])
    side.new.settle()
    assert side.new.run(run_id).status == "parked"


def test_an_older_build_that_is_deployed_again_is_the_newest(side_by_side: SideBySide) -> None:
    side = side_by_side(of(asker(version="1")), of(asker(version="2", resumes_from=["1"])))
    side.old.advance(TUNING.build_seconds + 1)
    assert side.new.services.build is not None
    side.new.services.build.renew()
    again = Build(side.old.store, "old")
    assert again.place > side.new.services.build.place
    side.old.deploy(side.old.app, again)
    run_id = parked_for_old(side)
    side.old.settle()
    assert side.old.run(run_id).status == "failed"


def test_a_process_that_has_not_registered_counts_as_the_newest(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    side.old.deploy(side.old.app)
    assert side.old.run(side.old.start("go")).status == "failed"


def test_an_unregistered_process_takes_what_was_left(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    run_id = side.old.start("go")
    assert side.old.run(run_id).status == "queued"
    side.old.deploy(of(asker()))
    side.old.wakeups.publish(WakeUp(run_id=run_id, due="reentry"))
    side.old.settle()
    assert side.old.run(run_id).status == "parked"


def test_a_suspect_run_that_was_left_stays_one(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    run_id = side.old.enqueue("go").run_id
    assert runs.claim(tuned(side.old.db, lease_seconds=60), run_id, suspect=False, token="dead") is not None
    side.old.advance(61)
    for world in (side.old, side.new):
        assert world.services.build is not None
        world.services.build.renew()
    assert side.old.sweep().abandoned == 1
    run = side.old.run(run_id)
    assert (run.status, run.deaths) == ("queued", 1)
    assert side.old.wakeups.published[-1] == WakeUp(run_id=run_id, due="suspect")
    assert not builds.may_take(side.old.db, run_id, side.old.services.build.place)  # type: ignore[union-attr]
    assert builds.may_take(side.old.db, run_id, side.new.services.build.place)  # type: ignore[union-attr]


def test_children_of_a_build_that_the_old_one_does_not_know_are_left_as_well(side_by_side: SideBySide) -> None:
    child = Agent("child", ScriptedModel([call("ask"), say("found")]), tools=[asker()])
    parent = Agent("agent", ScriptedModel([call("child", task="dig"), say("done")]), tools=[SubAgent(child)])
    side = side_by_side(App(agents=[OTHER]), App(agents=[parent]))
    root = side.new.start("go")
    (action,) = side.new.pending()
    side.old.answer(action, YES)
    assert side.old.run(action.origin.run_id).status == "queued"
    for _ in range(4):
        side.announced_to(side.old)
        side.announced_to(side.new)
    assert side.new.run(root).status == "completed"


def test_a_turn_that_only_a_newer_build_can_read_is_left_to_it(side_by_side: SideBySide) -> None:
    def old_pydantic_ai(_: Any) -> Any:
        raise NewerTurnError("m", ["part-of-the-future"])

    old = App(agents=[Agent("agent", ScriptedModel([call("ask"), old_pydantic_ai]), tools=[asker()])])
    side = side_by_side(old, of(asker()))
    run_id = parked_for_old(side)
    side.old.settle()
    assert side.old.run(run_id).status == "queued"
    assert "fault" not in [item.body.kind for item in side.old.items(run_id)]
    side.new.wakeups.publish(side.old.wakeups.published[-1])
    side.new.settle()
    assert side.new.run(run_id).status == "completed"


def test_the_log_of_a_run_says_nothing_of_builds_that_left_it(side_by_side: SideBySide) -> None:
    side = side_by_side(App(agents=[OTHER]), of(asker()))
    run_id = side.old.start("go")
    assert [item.body.kind for item in side.old.items(run_id)] == ["message"]


@pytest.mark.parametrize("build", ["", 7, b"x"])
def test_the_build_of_an_app_is_a_text(build: Any) -> None:
    with pytest.raises(DefinitionError, match="build"):
        App(build=build)


def test_an_old_build_asks_nobody_anew(side_by_side: SideBySide) -> None:
    side = side_by_side(of(asker("May it be?")), of(asker("Was it?")))
    run_id = parked_for_old(side)
    side.old.settle()
    assert side.old.pending(run_id) == []
    side.new.advance(TUNING.wakeup_retry_seconds / LEFT_WAKE_UPS)
    side.new.sweep()
    assert side.new.run(run_id).status == "completed"


def test_an_old_build_does_not_answer_a_call_of_a_tool_that_it_lacks(side_by_side: SideBySide) -> None:
    @tool
    def refund() -> str:
        """Refund."""
        return "refunded"

    model = ScriptedModel([[call("ask"), call("refund")], say("done")])
    side = side_by_side(of(asker()), App(agents=[Agent("agent", model, tools=[asker(), refund])]))
    run_id = side.new.enqueue("go").run_id
    side.new.wakeups.waiting.clear()
    # The new build records the response, and dies before the calls run.
    claim = runs.claim(side.new.db, run_id, suspect=False, token="dead")
    assert claim is not None
    calls = (ToolCall(id="call_ask", tool="ask", args={}), ToolCall(id="call_refund", tool="refund", args={}))
    runs.write(side.new.db, run_id, "dead", claim.revision, Write(items=(ResponseItem(text="", calls=calls),)))
    runs.put_back(side.new.db, [(run_id, "dead")])
    side.old.wakeups.publish(WakeUp(run_id=run_id, due="reentry"))
    side.old.settle()
    assert "refund" not in [output.tool for output in side.old.outputs(run_id)]
    assert side.old.run(run_id).status == "queued"
