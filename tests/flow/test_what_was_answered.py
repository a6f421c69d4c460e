"""What was answered can be read: by a client, in items, in events and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from typer.testing import CliRunner

from adjourn import Agent, Answer, Client, Context, NotFoundError, PendingAction, SubAgent, WaitPoint, tool
from adjourn.schemas.records.items import Item, ResolutionItem
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.cli.program import app as program
from adjourn.worker.config.settings import Settings
from adjourn.worker.text.timeline import timeline
from tests.waiting import LIMIT_SECONDS
from tests.world import AGENT, World

_BODIES = sa.text("select body from adjourn.items where run_id = :run_id")
VALUE = {"approved": True, "note": "Zoë “said” yes"}


class Ask(BaseModel):
    prompt: str


class Verdict(BaseModel):
    approved: bool
    note: str | None = None


gate = WaitPoint("gate", suspend=Ask, resume=Verdict, on_timeout="error")
with_default = WaitPoint(
    "gate", suspend=Ask, resume=Verdict, timeout=timedelta(hours=1), default=Verdict(approved=False, note="silence")
)


def asking(point: WaitPoint[Ask, Verdict] = gate, **options: Any) -> Any:
    @tool(name="act", wait_points=[point], **options)
    def act(ctx: Context) -> str:
        """Asks once."""
        return str(ctx.ask(point, Ask(prompt="Act?")).approved)

    return act


def agent(*tools: Any, **options: Any) -> Agent:
    return Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=tools or [asking()], **options)


class Desk:
    """A client beside a world."""

    def __init__(self, world: World, client: Client) -> None:
        self.world = world
        self.client = client

    def asked(self) -> PendingAction:
        self.run_id = self.world.start()
        (action,) = self.client.pending(run_id=self.run_id)
        return action

    def resolution(self) -> ResolutionItem:
        (found,) = resolutions(self.client.items(self.run_id))
        return found


def resolutions(items: tuple[Item, ...]) -> list[ResolutionItem]:
    return [item.body for item in items if isinstance(item.body, ResolutionItem)]


@pytest.fixture
def open_desk(plant: Callable[..., World], database_url: str, redis_url: str) -> Iterator[Callable[..., Desk]]:
    made: list[Client] = []

    def make(*blocks: Any, identity: str | None = "ann") -> Desk:
        world = plant(*(blocks or (agent(),)))
        made.append(Client(Settings(database_url=database_url, redis_url=redis_url), identity=identity))
        return Desk(world, made[-1])

    yield make
    for each in made:
        each.close()


def test_a_submit_can_be_read_with_its_reason_its_sender_and_its_channel(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    action = desk.asked()
    assert desk.client.action(action.id).resolution is None
    desk.client.submit(action.id, VALUE, reason="seen it", answer_id="one")
    read = desk.client.action(action.id)
    assert (read.status, read.input) == ("submitted", {"prompt": "Act?"})
    ended = read.resolution
    assert ended is not None
    assert (ended.resume, ended.reason, ended.answered_by, ended.channel, ended.answer_id) == (
        VALUE,
        "seen it",
        "ann",
        "client",
        "one",
    )
    item = desk.resolution()
    assert item.answer is not None
    assert (item.answer.resume, item.answer.reason, item.answer.channel, item.answered_by) == (
        VALUE,
        "seen it",
        "client",
        "ann",
    )


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ({"kind": "cancel", "reason": "not now"}, ("cancelled", None, None, "not now", None)),
        ({"kind": "cancel", "data": {"by": 7}}, ("cancelled", None, {"by": 7}, None, None)),
        ({"kind": "fail", "message": "lost", "reason": "fire"}, ("failed", None, None, "fire", "lost")),
        ({"kind": "submit", "data": VALUE, "reason": "ok"}, ("submitted", VALUE, None, "ok", None)),
    ],
    ids=lambda each: str(each)[:40],
)
def test_every_part_of_every_kind_of_answer_can_be_read(
    open_desk: Callable[..., Desk], answer: dict[str, Any], seen: tuple[Any, ...]
) -> None:
    desk = open_desk()
    action = desk.asked()
    assert desk.world.send(json.dumps({"action_id": action.id, **answer})).status == "accepted"
    ended = desk.client.action(action.id).resolution
    assert ended is not None
    assert (ended.status, ended.resume, ended.data, ended.reason, ended.message) == seen
    said = desk.resolution().answer
    assert said is not None
    assert (said.resume, said.data, said.reason, said.message) == seen[1:]


@pytest.mark.parametrize("value", [False, 0, "", [], None, 1.5, {"a": None}])
def test_a_value_that_is_false_is_read_as_it_was_said(open_desk: Callable[..., Desk], value: Any) -> None:
    point: WaitPoint[Any, Any] = WaitPoint("gate", suspend=Ask, resume=Any)

    @tool(name="act", wait_points=[point])
    def act(ctx: Context) -> str:
        return str(ctx.ask(point, Ask(prompt="Act?")))

    desk = open_desk(agent(act))
    action = desk.asked()
    desk.client.submit(action.id, value)
    ended = desk.client.action(action.id).resolution
    assert ended is not None
    assert json.dumps(ended.resume) == json.dumps(value)
    lines = list(timeline(desk.client.items(desk.run_id)))
    assert any(line.endswith(f"→ {json.dumps(value)}") for line in lines)


def test_a_deadline_shows_the_default_that_it_answered(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(agent(asking(with_default)))
    action = desk.asked()
    desk.world.advance(7_200)
    desk.world.sweep()
    ended = desk.client.action(action.id).resolution
    assert ended is not None
    assert (ended.status, ended.resume, ended.channel) == ("expired", {"approved": False, "note": "silence"}, None)
    said = desk.resolution().answer
    assert said is not None
    assert said.resume == {"approved": False, "note": "silence"}


def test_each_channel_has_its_name(open_desk: Callable[..., Desk]) -> None:
    def resolver(action: PendingAction) -> Answer:
        return Answer(action_id=action.id, data=VALUE)

    desk = open_desk(agent(resolver=resolver))
    desk.run_id = desk.world.start()
    (item,) = resolutions(desk.client.items(desk.run_id))
    assert item.answer is not None
    assert (item.answer.channel, item.answer.resume, item.answered_by) == ("resolver", VALUE, "resolver")


def test_a_wait_that_was_closed_with_its_run_has_no_answer(
    open_desk: Callable[..., Desk],
) -> None:
    desk = open_desk()
    action = desk.asked()
    desk.client.cancel_run(desk.run_id, "enough")
    item = desk.resolution()
    assert (item.status, item.answer.channel if item.answer else None) == ("cancelled", None)
    assert desk.client.action(action.id).status == "cancelled"


def test_an_answer_to_a_fork_is_read_from_the_action_that_it_was_given_to(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    action = desk.asked()
    desk.client.submit(action.id, VALUE)
    desk.world.wakeups.publish(WakeUp(run_id=desk.run_id, due="reentry"))
    desk.world.settle()
    copy = desk.client.fork(desk.client.get_run(desk.run_id).thread_id)
    (run,) = desk.client.thread(copy).state().runs
    (item,) = resolutions(desk.client.items(run.id))
    assert item.answer is not None
    assert item.answer.resume == VALUE


def test_live_events_and_recorded_ones_say_the_same(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    action = desk.asked()
    thread_id = desk.client.get_run(desk.run_id).thread_id
    before = list(desk.client.thread(thread_id).events(timeout=0))
    live = desk.world.services.events
    desk.client.submit(action.id, VALUE, reason="fine")
    told = [event for entry in live.read(thread_id, "0-0", 10) for event in entry.events]
    recorded = list(desk.client.thread(thread_id).events(before[-1].id, timeout=0))
    wanted = [event for event in recorded if getattr(getattr(event, "item", None), "kind", "") == "resolution"]
    assert len(wanted) == 1
    assert wanted[0].item.answer.resume == VALUE
    assert wanted[0] in told


def test_what_a_sub_agent_was_answered_is_an_event_of_the_root(open_desk: Callable[..., Desk]) -> None:
    below = Agent("below", ScriptedModel([call("act"), say("done")]), tools=[asking()])
    root = Agent(AGENT, ScriptedModel([call("below", task="go"), say("done")]), tools=[SubAgent(below)])
    desk = open_desk(root)
    desk.run_id = desk.world.start()
    (action,) = desk.client.pending(run_id=desk.run_id)
    events = desk.client.follow(desk.run_id, timeout=LIMIT_SECONDS)
    ended = None
    for event in events:
        if event.kind == "nested" and event.action.status == "pending":
            desk.client.submit(action.id, VALUE)
        elif event.kind == "nested":
            ended = event.resolution
            break
    assert ended is not None
    assert (ended.resume, ended.answered_by, ended.channel) == (VALUE, "ann", "client")


def test_an_action_is_found_by_the_id_that_its_tool_chose(open_desk: Callable[..., Desk]) -> None:
    @tool(name="act")
    def act(ctx: Context) -> str:
        if ctx.answer is None:
            ctx.request(id="req-1", prompt="Act?")
        return "ok"

    desk = open_desk(agent(act))
    action = desk.asked()
    assert desk.client.action("req-1") == desk.client.action(action.id)
    with pytest.raises(NotFoundError):
        desk.client.action("req-2")


def test_an_action_can_be_answered_as_it_was_read(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    action = desk.client.action(desk.asked().id)
    assert action.fail(OSError("disk full")).status == "accepted"
    ended = desk.client.action(action.id).resolution
    assert ended is not None
    assert ended.message == "OSError: disk full"
    (item,) = resolutions(desk.client.items(desk.run_id))
    assert item.answer is not None
    assert item.answer.message == "OSError: disk full"


def test_the_command_line_shows_it(
    open_desk: Callable[..., Desk], database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADJOURN_DATABASE_URL", database_url)
    monkeypatch.setenv("ADJOURN_REDIS_URL", redis_url)
    desk = open_desk()
    action = desk.asked()
    run = CliRunner().invoke
    said = run(program, ["answer", action.id, json.dumps(VALUE), "--reason", "seen it"])
    assert said.exit_code == 0
    shown = run(program, ["action", action.id]).stdout
    for part in ("submitted", json.dumps(VALUE, ensure_ascii=False), "seen it", "client", "Act?"):
        assert part in shown
    document = json.loads(run(program, ["action", action.id, "--json"]).stdout)
    assert document["resolution"]["resume"] == VALUE
    assert document["suspend_schema"]["properties"] == {"prompt": {"type": "string"}}
    lines = run(program, ["show", desk.run_id]).stdout
    assert f"{action.id} submitted via client" in lines
    assert f"→ {json.dumps(VALUE, ensure_ascii=False)}" in lines
    assert "reason: seen it" in lines
    items = json.loads(run(program, ["show", desk.run_id, "--json"]).stdout)["items"]
    (said_item,) = [item["body"]["answer"] for item in items if item["body"]["kind"] == "resolution"]
    assert (said_item["resume"], said_item["reason"]) == (VALUE, "seen it")
    assert run(program, ["action", "act_nobody"]).exit_code == 1


def test_the_stored_item_does_not_repeat_the_value(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    action = desk.asked()
    desk.client.submit(action.id, {"approved": True, "note": "x" * 5_000})
    bodies = [row.body for row in desk.world.db.execute(_BODIES, {"run_id": desk.run_id})]
    assert not any("xxxx" in body for body in bodies)
