"""What a client sees of a thread: actions that it can answer, the turns that are open, and the ids of all turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from adjourn import (
    Agent,
    App,
    Client,
    Context,
    Parallel,
    PendingRequest,
    Sequential,
    SubAgent,
    UnusableHandleError,
    WaitPoint,
    require_approval,
    tool,
)
from adjourn.schemas.records.runs import WakeUp
from adjourn.schemas.records.threads import OpenTurn, ThreadState
from adjourn.store.redis.parking import Parking
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.config.settings import Settings
from tests.world import AGENT, World

Plant = Callable[..., World]


class Ask(BaseModel):
    prompt: str


gate = WaitPoint("gate", suspend=Ask, resume=bool)


@tool(wait_points=[gate])
def act(ctx: Context, what: str) -> str:
    """Asks before it acts."""
    return f"{what}: {ctx.ask(gate, Ask(prompt=what))}"


@tool
def look(where: str) -> str:
    """Looks somewhere."""
    return f"seen {where}"


@tool(wait_points=[gate])
def confirm(ctx: Context, text: str) -> str:
    """Asks whether a text is fine."""
    return f"{text} {ctx.ask(gate, Ask(prompt=text))}"


def agent(*steps: Any, name: str = AGENT, tools: Any = (act, look), **options: Any) -> Agent:
    return Agent(name, ScriptedModel([*steps, say("done")]), tools=tools, **options)


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    with Client(Settings(database_url=database_url, redis_url=redis_url)) as made:
        yield made


def state_of(client: Client, run_id: str) -> ThreadState:
    return client.thread(client.get_run(run_id).thread_id).state()


def assert_that_all_origins_are_listed(state: ThreadState) -> None:
    listed = {turn.id for turn in (*state.messages, *state.open_turns)}
    assert {action.origin.message_id for action in state.pending} <= listed
    by_id = {turn.id: turn for turn in state.open_turns}
    for action in state.pending:
        waiting = [call for call in by_id[action.origin.message_id].calls if action.id in call.action_ids]
        assert waiting, f"no call of turn {action.origin.message_id} waits for {action.id}"
        assert all(call.status == "waiting" for call in waiting)


# --- answering -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["state", "wait", "snapshot"])
@pytest.mark.parametrize("verb", ["submit", "cancel", "fail"])
def test_what_a_state_shows_as_pending_can_be_answered(plant: Plant, client: Client, way: str, verb: str) -> None:
    w = plant(agent(call("act", what="a")))
    run_id = w.start()
    handle = client.thread(client.get_run(run_id).thread_id)
    if way == "state":
        (pending,) = handle.state().pending
    elif way == "wait":
        pending = handle.wait().pending
    else:
        pending = handle.snapshot().pending
    receipt = {
        "submit": lambda: pending.submit(True, reason="fine"),
        "cancel": lambda: pending.cancel("no", data={"a": 1}),
        "fail": lambda: pending.fail(OSError("lost")),
    }[verb]()
    assert receipt.status == "accepted"
    ended = client.action(getattr(pending, "action_id", pending.id)).resolution
    assert ended is not None
    assert ended.status == {"submit": "submitted", "cancel": "cancelled", "fail": "failed"}[verb]


def test_a_request_that_came_from_json_says_how_it_can_be_answered(plant: Plant, client: Client) -> None:
    w = plant(agent(call("act", what="a")))
    request = client.thread(client.get_run(w.start()).thread_id).wait().pending
    assert request is not None
    copy = PendingRequest.model_validate_json(request.model_dump_json())
    assert copy == request
    with pytest.raises(UnusableHandleError, match=r"Client\.resume"):
        copy.submit(True)


# --- open turns ------------------------------------------------------------------------------------


def test_the_open_turn_shows_what_was_asked_for_what_has_finished_and_what_waits(plant: Plant, client: Client) -> None:
    w = plant(agent([call("act", what="a"), call("look", where="here"), call("act", what="b")]))
    run_id = w.start()
    state = state_of(client, run_id)
    assert [turn.kind for turn in state.messages] == ["user"]
    turn = state.open_turn
    assert isinstance(turn, OpenTurn)
    assert (turn.id, turn.run_id, turn.call_id) == (f"{run_id}:2", run_id, "root")
    assert [(each.tool, each.args, each.status, each.output) for each in turn.calls] == [
        ("act", {"what": "a"}, "waiting", None),
        ("look", {"where": "here"}, "finished", "seen here"),
        ("act", {"what": "b"}, "waiting", None),
    ]
    assert [each.action_ids for each in turn.calls if each.action_ids] == [(each.id,) for each in state.pending]
    assert_that_all_origins_are_listed(state)
    first, _ = w.pending()
    w.answer(first, True)
    state = state_of(client, run_id)
    assert [each.status for each in state.open_turns[0].calls] == ["finished", "finished", "waiting"]
    for action in w.pending():
        w.answer(action, True)
    state = state_of(client, run_id)
    assert (state.open_turns, state.open_turn) == ((), None)
    assert [turn.id for turn in state.messages if turn.kind == "model"] == [f"{run_id}:2", turn_id_of_last(w, run_id)]
    assert len({turn.id for turn in state.messages}) == len(state.messages)


def turn_id_of_last(w: World, run_id: str) -> str:
    seq = max(item.seq for item in w.items(run_id) if item.body.kind == "response")
    return f"{run_id}:{seq}"


TREES: dict[str, Any] = {
    "a step of a root sequence": lambda: [Sequential("flow", [confirm])],
    "parallel steps": lambda: [Parallel("flow", {"one": confirm, "two": confirm})],
    "a handler as root": lambda: [confirm],
    "an agent as a step": lambda: [Sequential("flow", [agent(call("act", what="a"), name="inner")])],
    "a sequence as a tool": lambda: [agent(call("flow", input="x"), tools=[Sequential("flow", [confirm])])],
    "an agent in a sequence as a tool": lambda: [
        agent(call("flow", input="x"), tools=[Sequential("flow", [agent(call("act", what="a"), name="inner")])])
    ],
    "a sub-agent": lambda: [agent(call("sub", task="x"), tools=[SubAgent(agent(call("act", what="a"), name="sub"))])],
    "a policy": lambda: [agent(call("look", where="x"), policies=[require_approval("look")])],
}


@pytest.mark.parametrize("tree", TREES)
def test_every_origin_names_a_turn_that_the_state_lists(plant: Plant, client: Client, tree: str) -> None:
    blocks = TREES[tree]()
    w = plant(*blocks)
    run_id = w.start("go", agent=blocks[0].name)
    state = state_of(client, run_id)
    assert state.pending, client.get_run(run_id)
    assert_that_all_origins_are_listed(state)
    outermost = state.open_turns[0]
    assert outermost.run_id == run_id
    assert any(each.status == "waiting" for each in outermost.calls)
    assert json.loads(state.model_dump_json())["open_turns"][0]["id"] == outermost.id


def test_a_run_that_ended_has_no_open_turn(plant: Plant, client: Client) -> None:
    w = plant(agent(call("act", what="a")))
    run_id = w.start()
    client.cancel_run(run_id)
    state = state_of(client, run_id)
    assert (state.open_turns, state.pending) == ((), ())


# --- the suspend schema ----------------------------------------------------------------------------

_ASKED = sa.text("select asked from adjourn.actions")
_OLD = sa.text("update adjourn.actions set asked = :asked")


def test_the_suspend_schema_is_published_beside_the_resume_schema(plant: Plant, client: Client) -> None:
    w = plant(agent(call("act", what="a")))
    run_id = w.start()
    (action,) = client.pending(run_id=run_id)
    assert action.suspend_schema is not None
    Draft202012Validator(action.suspend_schema).validate(action.input)
    assert not Draft202012Validator(action.suspend_schema).is_valid({"prompt": 7})
    (event,) = [each for each in client.thread(action.origin.thread_id).events(timeout=0) if each.kind == "suspension"]
    assert event.action.suspend_schema == action.suspend_schema
    request = client.thread(action.origin.thread_id).wait().pending
    assert request is not None
    assert request.suspend_schema == action.suspend_schema


def test_an_ad_hoc_wait_and_an_approval_have_one_too(plant: Plant, client: Client) -> None:
    @tool
    def adhoc(ctx: Context) -> str:
        """Asks without a wait point."""
        return str(ctx.ask(reason="go", message="Act?", resume=bool))

    @tool
    def requesting(ctx: Context) -> str:
        """Asks in short."""
        return ctx.request(data={"a": 1}) if ctx.answer is None else "ok"

    calls = [call("adhoc"), call("requesting"), call("look", where="x")]
    w = plant(agent(calls, tools=[adhoc, requesting, look], policies=[require_approval("look")]))
    run_id = w.start()
    found = client.pending(run_id=run_id)
    assert len(found) == 3
    for action in found:
        assert action.suspend_schema is not None
        Draft202012Validator(action.suspend_schema).validate(action.input)


def test_an_action_of_an_older_version_has_none_and_is_answered_all_the_same(plant: Plant, client: Client) -> None:
    w = plant(agent(call("act", what="a")))
    run_id = w.start()
    (row,) = w.db.execute(_ASKED, {})
    asked = json.loads(row.asked)
    del asked["suspend_schema"]
    w.db.execute(_OLD, {"asked": json.dumps(asked)})
    (action,) = client.pending(run_id=run_id)
    assert action.suspend_schema is None
    assert w.answer(action, True).status == "accepted"
    assert w.run(run_id).status == "completed"


def test_the_record_in_redis_is_not_larger_for_it(plant: Plant, client: Client) -> None:
    w = plant(agent(call("act", what="a")))
    w.start()
    (action,) = w.pending()
    record = Parking(w.redis, w.db.signing_key).get(action.id)
    assert record is None or record.suspend_schema is None
    assert "suspend_schema" not in str(w.redis.get(f"adjourn:parking:{action.id}"))


def test_a_wait_that_a_retry_opens_again_waits_in_its_turn(plant: Plant, client: Client) -> None:
    two = [call("act", what="a"), call("act", what="b")]
    w = plant(agent(two, tools=[act]))
    run_id = w.start()
    first, second = w.pending()

    @tool(name="act", wait_points=[gate], version="2")
    def changed(ctx: Context, what: str) -> str:
        """Asks before it acts."""
        return f"{what}: {ctx.ask(gate, Ask(prompt=what))}"

    w.deploy(App(agents=[agent(two, tools=[changed])]))
    w.answer(first, True)
    assert state_of(client, run_id).open_turns == ()
    (closed,) = [item.body for item in client.items(run_id) if getattr(item.body, "status", "") == "cancelled"]
    w.deploy(App(agents=[agent(two, tools=[act])]))
    client.retry(run_id)
    w.wakeups.publish(WakeUp(run_id=run_id, due="reentry"))
    w.settle()
    state = state_of(client, run_id)
    assert [action.id for action in state.pending] == [second.id] == [closed.action_id]
    assert_that_all_origins_are_listed(state)
    assert [each.status for each in state.open_turns[0].calls] == ["finished", "waiting"]
    w.answer(second, False)
    ends = [item.body for item in client.items(run_id) if item.body.kind == "resolution"]
    assert [(end.status, end.answer.resume if end.answer else None) for end in ends] == [
        ("submitted", True),
        ("cancelled", None),
        ("submitted", False),
    ]
