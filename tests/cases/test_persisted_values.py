"""Persisted values: what goes into a wait comes out of it, and what cannot be kept is said, once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from adjourn import Client, Context, WaitPoint, tool
from adjourn.schemas.errors import AnswerRefusedError
from adjourn.schemas.records.items import MessageItem, ResponseItem
from adjourn.schemas.records.messages import ModelRequest, ResultTurn
from adjourn.schemas.records.runs import Due, WakeUp
from adjourn.tasks.models.scripted import ScriptedModel, call, call_raw, say
from adjourn.worker.config.settings import load_settings
from tests.cases.conftest import Build
from tests.cases.tools import Question, Verdict, asking
from tests.cases.typed import BOTH, Keeper, same
from tests.world import AGENT, Counters, World, scripted

NUL = "a\x00b"
SURROGATE = "a\ud800b"
REPLACED = "a\ufffdb"
LITERAL = r"a\u0000b"
"""Backslash, u, 0, 0, 0, 0: ordinary text."""

q = WaitPoint("q", suspend=Question, resume=Verdict)
free = WaitPoint("free", suspend=dict[str, str], resume=str)


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    with Client(load_settings(database_url=database_url, redis_url=redis_url)) as made:
        yield made


# --- NUL and its like ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_what_a_tool_says_is_replaced_and_the_run_completes(build: Build, bad: str) -> None:
    requests: list[ModelRequest] = []

    @tool(wait_points=[q, free])
    def speak(ctx: Context) -> dict[str, str]:
        """Say it everywhere that a tool can."""
        ctx.run_once("memo", lambda: {bad: bad, REPLACED: "clean"})
        ctx.ask(q, Question(prompt=bad))
        ctx.ask(q, Question(prompt="?"), prompt=bad, request_id=bad)
        return {bad: bad, REPLACED: "clean", "answer": ctx.ask(free, {bad: bad}, key=bad)}

    model = ScriptedModel([call("speak"), say(bad)], on_request=requests.append)
    w = build(speak, model=model)
    run_id = w.start()
    action = w.the_action(run_id)
    assert (action.prompt, action.input) == (REPLACED, {"prompt": REPLACED})
    assert w.answer(action, {"approved": True}).status == "accepted"
    second = w.the_action(run_id)
    assert (second.prompt, second.request_id) == (REPLACED, REPLACED)
    assert w.answer(second, {"approved": True}).status == "accepted"
    third = w.the_action(run_id)
    assert third.input == {REPLACED: REPLACED}
    assert w.answer(third, LITERAL).status == "accepted"

    # A key that meets another one after the replacement keeps its value under a name of its own.
    expected = {f"{REPLACED}~2": REPLACED, REPLACED: "clean", "answer": LITERAL}
    (output,) = w.outputs(run_id)
    assert (output.outcome, output.content) == ("success", expected)
    assert [t.content for t in requests[-1].conversation if isinstance(t, ResultTurn)] == [expected]
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", REPLACED)


class Measured(BaseModel):
    mean: float
    parts: list[float]
    raw: Any


def test_numbers_that_json_lacks_are_null_in_what_a_tool_returns_and_refused_in_what_it_keeps(build: Build) -> None:
    numbers = Measured(mean=math.nan, parts=[1.5, -math.inf], raw={"sum": math.inf, "count": 10**400})

    @tool(wait_points=[WaitPoint("measured", suspend=Measured, resume=Verdict)])
    def measure(ctx: Context, where: str) -> Measured:
        """Measure something that has no parts."""
        if where == "suspend":
            ctx.ask("measured", numbers)
        if where == "memo":
            ctx.run_once("memo", lambda: numbers, returns=Measured)
        return numbers

    w = build(
        measure, model=scripted([call("measure", where=where) for where in ("output", "suspend", "memo")], say(""))
    )
    run_id = w.start()
    returned, suspended, kept = w.outputs(run_id)
    expected = {"mean": None, "parts": [1.5, None], "raw": {"sum": None, "count": None}}
    assert (returned.outcome, returned.content) == ("success", expected)
    assert [each.outcome for each in (suspended, kept)] == ["error", "error"]
    assert all("/mean: NaN" in each.content for each in (suspended, kept))
    assert w.run(run_id).status == "completed"


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_what_a_failing_tool_says_is_replaced_and_the_run_completes(build: Build, bad: str) -> None:
    @tool
    def fail(ctx: Context) -> str:
        """Fail with it."""
        raise ValueError(bad)

    w = build(fail, model=scripted(call("fail"), say("ok")))
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert (output.outcome, output.content) == ("error", f"ValueError: {REPLACED}")
    assert w.run(run_id).status == "completed"


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_what_a_model_says_is_replaced_and_the_run_completes(build: Build, bad: str) -> None:
    heard: list[str] = []

    @tool
    def hear(ctx: Context, said: str) -> str:
        """Hear what the model says."""
        heard.append(said)
        return said

    w = build(
        hear,
        model=scripted(
            say(bad, call("hear", said=bad)),
            call_raw("hear", f'{{"said": "{bad}"}}', id=bad),
            call_raw("hear", f'{{"said": "{bad}"', id=bad),
            call_raw(bad, "{}"),
            say("ok"),
        ),
    )
    run_id = w.start()
    assert w.run(run_id).status == "completed", w.run(run_id).error
    responses = [item.body for item in w.items(run_id) if isinstance(item.body, ResponseItem)]
    assert responses[0].text == REPLACED
    assert set(heard) == {REPLACED}
    # The model sent malformed JSON twice with a raw NUL; it reads why, and the run goes on.
    assert {output.outcome for output in w.outputs(run_id)} == {"success", "error"}


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_what_a_user_says_is_replaced(build: Build, client: Client, bad: str) -> None:
    requests: list[ModelRequest] = []
    w = build(model=ScriptedModel([say("ok")], on_request=requests.append))
    run = client.start(AGENT, f"{bad} and {LITERAL}")
    drive(w, run.id)
    assert w.items(run.id)[0].body == MessageItem(text=f"{REPLACED} and {LITERAL}")
    assert w.run(run.id).status == "completed"


BAD_TEXT_IN_ANSWERS: tuple[tuple[bytes, str, str], ...] = (
    (rb'{"action_id":"ID","data":{"approved":true,"note":"a\u0000b"}}', "NUL", "/data/note"),
    (b'{"action_id":"ID","data":{"approved":true,"note":"a\x00b"}}', "ontrol character", ""),
    (rb'{"action_id":"ID","data":{"approved":true,"a\u0000b":1}}', "NUL", "/data/a\ufffdb"),
    (rb'{"action_id":"ID","data":{"approved":true,"note":"a\ud800b"}}', "surrogate", "/data/note"),
    (rb'{"action_id":"ID","data":{"approved":true,"note":"a\udc00\ud800b"}}', "surrogate", "/data/note"),
    (b'{"action_id":"ID","data":{"approved":true,"note":"a\xed\xa0\x80b"}}', "UTF-8", ""),
    (rb'{"action_id":"ID","kind":"cancel","reason":"a\u0000b"}', "NUL", "/reason"),
    (rb'{"action_id":"ID","kind":"fail","message":"a\ud800b"}', "surrogate", "/message"),
    (rb'{"action_id":"ID","answer_id":"a\u0000b","data":{"approved":true}}', "NUL", "/answer_id"),
    (rb'{"id":"ID","ok":false,"reason":"a\u0000b"}', "NUL", "/reason"),
)


def test_in_an_answer_it_is_refused_with_the_reason(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    for raw, reason, path in BAD_TEXT_IN_ANSWERS:
        refused = w.send(raw.replace(b"ID", action.id.encode()))
        assert refused.status == "malformed", raw
        assert reason in refused.detail, (raw, refused)
        assert [issue.path for issue in refused.issues] == [path]
        assert w.the_action(run_id) == action
    assert (fx["fx"], w.run(run_id).status) == (0, "parked")
    pair = rb'{"action_id":"ID","data":{"approved":true,"note":"\ud83d\ude00 a\\u0000b"}}'
    assert w.send(pair.replace(b"ID", action.id.encode())).status == "accepted"
    (output,) = w.outputs(run_id)
    assert output.content == {"x": 1, "note": f"\U0001f600 {LITERAL}"}


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_in_an_answer_of_the_python_client_it_is_refused_like_any_other(build: Build, client: Client, bad: str) -> None:
    w = build(asking("inline", Counters()), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    statuses = [
        client.submit(action.id, {"approved": True, "note": bad}, raise_on_refusal=False).status,
        client.submit(action.id, {"approved": True, bad: bad}, raise_on_refusal=False).status,
        client.submit(action.id, {"approved": True}, answer_id=bad, raise_on_refusal=False).status,
        client.submit(action.id, {"approved": True}, name=bad, raise_on_refusal=False).status,
        client.submit(bad, {"approved": True}, raise_on_refusal=False).status,
        client.cancel(action.id, reason=bad, raise_on_refusal=False).status,
        client.fail(action.id, message=bad, raise_on_refusal=False).status,
    ]
    assert statuses == ["malformed"] * 7
    with pytest.raises(AnswerRefusedError, match="malformed"):
        client.cancel(action.id, reason=bad)
    assert w.the_action(run_id) == action
    assert client.submit(action.id, {"approved": True, "note": LITERAL}).status == "accepted"
    drive(w, run_id)
    assert w.outputs(run_id)[0].content == {"x": 1, "note": LITERAL}


@pytest.mark.parametrize("bad", [NUL, SURROGATE], ids=["NUL", "surrogate"])
def test_the_reason_of_a_cancel_is_replaced(build: Build, client: Client, bad: str) -> None:
    w = build(asking("inline", Counters()), model=scripted(call("ask", x=1), say("done")))
    run = client.cancel_run(w.start(), reason=bad)
    assert (run.status, run.error and run.error.message) == ("cancelled", REPLACED)


def test_the_six_literal_characters_survive_everywhere(build: Build, client: Client) -> None:
    @tool(wait_points=[q, free])
    def speak(ctx: Context, said: str) -> dict[str, Any]:
        """Say it everywhere that a tool can."""
        memo = ctx.run_once(LITERAL, lambda: {LITERAL: LITERAL})
        ctx.ask(q, Question(prompt=LITERAL), request_id=LITERAL, key=LITERAL)
        answer = ctx.ask(free, {LITERAL: said}, key=LITERAL)
        return {LITERAL: [said, memo, answer]}

    w = build(speak, model=scripted(call("speak", said=LITERAL), say(LITERAL)))
    run = client.start(AGENT, LITERAL)
    drive(w, run.id)
    action = w.the_action(run.id)
    assert (action.prompt, action.request_id, action.input) == (LITERAL, LITERAL, {"prompt": LITERAL})
    assert w.answer(LITERAL, {"approved": True, "note": LITERAL}).status == "accepted"
    assert w.the_action(run.id).input == {LITERAL: LITERAL}
    assert w.answer(w.the_action(run.id), LITERAL).status == "accepted"
    assert w.outputs(run.id)[0].content == {LITERAL: [LITERAL, {LITERAL: LITERAL}, LITERAL]}
    assert w.run(run.id).output == LITERAL
    assert w.items(run.id)[0].body == MessageItem(text=LITERAL)


# --- types that JSON does not have --------------------------------------------------


class Color(Enum):
    RED = "red"
    TWO = 2


class Mood(StrEnum):
    CALM = "calm"


class Level(IntEnum):
    HIGH = 3


class Rights(Flag):
    READ = 1
    WRITE = 2


class Nested(BaseModel):
    color: Color
    mood: Mood
    level: Level
    inner: dict[str, list[Color | None]]
    pair: tuple[Mood, Color]
    by_color: dict[Color, Mood]
    maybe: Mood | None = None


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = ""


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    number: str = ""


Tagged = Annotated[Card | Cash, Field(discriminator="kind")]


class Payment(BaseModel):
    by: Tagged
    all: list[Tagged] = []
    plain: Card | Cash = Cash()
    named: dict[str, Tagged] = {}


NESTED = Nested(
    color=Color.RED,
    mood=Mood.CALM,
    level=Level.HIGH,
    inner={"a": [Color.TWO, None]},
    pair=(Mood.CALM, Color.RED),
    by_color={Color.RED: Mood.CALM},
)
PAYMENT = Payment(by=Cash(), all=[Card(), Cash()], plain=Cash(), named={"a": Card(number="7")})

VALUES: dict[str, tuple[Any, Any, Any]] = {
    # enums of every kind, alone and inside
    "enum": (Color, Color.TWO, 2),
    "str enum": (Mood, Mood.CALM, "calm"),
    "int enum": (Level, Level.HIGH, 3),
    "flag": (Rights, Rights.WRITE, 2),
    "optional enum": (Color | None, Color.RED, "red"),
    "enums inside": (
        Nested,
        NESTED,
        {
            "color": "red",
            "mood": "calm",
            "level": 3,
            "inner": {"a": [2, None]},
            "pair": ["calm", "red"],
            "by_color": {"red": "calm"},
            "maybe": None,
        },
    ),
    # tags that are defaults
    "tagged": (Tagged, Cash(), {"kind": "cash", "number": ""}),
    "tagged inside": (
        Payment,
        PAYMENT,
        {
            "by": {"kind": "cash", "number": ""},
            "all": [{"kind": "card", "number": ""}, {"kind": "cash", "number": ""}],
            "plain": {"kind": "cash", "number": ""},
            "named": {"a": {"kind": "card", "number": "7"}},
        },
    ),
    # keys that are no text
    "int keys": (dict[int, str], {1: "a", -2: "b"}, {"1": "a", "-2": "b"}),
    "int keys inside": (dict[int, dict[int, list[str]]], {1: {2: ["a"]}}, {"1": {"2": ["a"]}}),
    "date keys": (dict[date, int], {date(2026, 1, 2): 1}, {"2026-01-02": 1}),
    "uuid keys": (dict[UUID, int], {UUID(int=1): 1}, {str(UUID(int=1)): 1}),
    "enum keys": (dict[Level, int], {Level.HIGH: 1}, {"3": 1}),
}


@pytest.mark.parametrize("style", BOTH)
def test_g6_g8_values_come_back_as_they_went(build: Build, style: str) -> None:
    keepers = {
        name: Keeper(style, f"keep{n}", suspend=type_, data=value, resume=type_)
        for n, (name, (type_, value, _)) in enumerate(VALUES.items())
    }
    w = build(
        *(supervisor.tool for supervisor in keepers.values()),
        model=scripted([call(supervisor.tool.name) for supervisor in keepers.values()], say("done")),
    )
    run_id = w.start()
    actions = {action.origin.tool: action for action in w.pending(run_id)}
    for name, supervisor in keepers.items():
        _, value, wire = VALUES[name]
        w.deploy(w.app)
        action = actions[supervisor.tool.name]
        assert action.input == wire, name
        assert w.answer(action, wire).status == "accepted", name
        (kept,) = supervisor.kept
        for found in (kept.answer, kept.asked, kept.in_history):
            assert same(found, value), (name, found)
    contents = {output.tool: output.content for output in w.outputs(run_id)}
    assert {name: contents[supervisor.tool.name] for name, supervisor in keepers.items()} == {
        name: wire for name, (_, _, wire) in VALUES.items()
    }
    assert w.run(run_id).status == "completed"


def test_g6_g8_inputs_and_memos_come_back_as_they_went(build: Build) -> None:
    seen: list[Any] = []

    @tool(wait_points=[q])
    def take(ctx: Context, nested: Nested, payment: Payment, keys: dict[int, str]) -> bool:
        """Take typed input, and remember it."""
        memo = ctx.run_once("memo", lambda: (nested, payment, keys), returns=tuple[Nested, Payment, dict[int, str]])
        seen.append((ctx.input.nested, ctx.input.payment, ctx.input.keys))
        seen.append(memo)
        ctx.ask(q, Question(prompt="?"))
        return True

    wires = [VALUES[name][2] for name in ("enums inside", "tagged inside", "int keys")]
    w = build(take, model=scripted(call("take", nested=wires[0], payment=wires[1], keys=wires[2]), say("ok")))
    run_id = w.start()
    w.deploy(w.app)
    assert w.answer(w.the_action(run_id), {"approved": True}).status == "accepted"
    assert len(seen) == 4
    assert all(same(each, (NESTED, PAYMENT, {1: "a", -2: "b"})) for each in seen), seen
    assert w.run(run_id).status == "completed"


@pytest.mark.parametrize("style", BOTH)
def test_a_value_of_no_member_is_refused_and_never_becomes_none(build: Build, style: str) -> None:
    supervisor = Keeper(style, "keep", suspend=Color, data=Color.RED, resume=dict[str, Color | None])
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    for wrong in ({"a": "RED"}, {"a": "green"}, {"a": "Color.RED"}, {"a": ""}, {"a": "2"}):
        refused = w.answer(action, wrong)
        assert (refused.status, refused.issues[0].path) == ("invalid", "/a"), wrong
    assert w.answer(action, {"a": "red", "b": None, "c": 2}).status == "accepted"
    assert same(supervisor.kept[0].answer, {"a": Color.RED, "b": None, "c": Color.TWO})


def test_a_tag_is_not_guessed(build: Build) -> None:
    supervisor = Keeper("inline", "keep", suspend=str, data="?", resume=Payment)
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    for wrong in ({"by": {"kind": "cheque"}}, {"by": {"number": "1"}}, {"by": {}}, {"by": None}):
        refused = w.answer(action, wrong)
        assert refused.status == "invalid", wrong
        assert refused.issues[0].path.startswith("/by")
    assert w.answer(action, {"by": {"kind": "card"}}).status == "accepted"
    assert same(supervisor.kept[0].answer, Payment(by=Card()))


def test_keys_that_are_no_ints_are_refused(build: Build) -> None:
    supervisor = Keeper("inline", "keep", suspend=str, data="?", resume=dict[int, str])
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    wrongs: tuple[Any, ...] = ({"a": "x"}, {"": "x"}, {"1.5": "x"}, {"1": 1}, {"0x1": "x"})
    for wrong in wrongs:
        assert w.answer(action, wrong).status == "invalid", wrong
    assert w.answer(action, {"0": ""}).status == "accepted"
    assert same(supervisor.kept[0].answer, {0: ""})


def drive(w: World, run_id: str) -> None:
    """Take a run as far as it goes that was started or answered through a client."""
    dues: tuple[Due, ...] = ("turn", "reentry")
    for due in dues:
        w.wakeups.publish(WakeUp(run_id=run_id, due=due))
    w.settle()
