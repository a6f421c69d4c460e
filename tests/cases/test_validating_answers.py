"""Validating answers: a bad one uses nothing up, an empty one is one, and only the right one counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from typing import Any, Generic, Literal, Optional, TypeVar

import pytest
from pydantic import BaseModel

from adjourn import Context, Tool, WaitPoint, tool
from adjourn.schemas.records.messages import ModelRequest
from adjourn.tasks.answers.answering import receive
from adjourn.tasks.host.services import Door
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.cases.conftest import Build
from tests.cases.tools import WAYS, Question, Verdict, asking
from tests.cases.typed import BOTH, Keeper, same
from tests.world import Counters, World, scripted

T = TypeVar("T")

# --- incomplete and bad payloads ----------------------------------------------------------

BAD_VERDICTS: tuple[tuple[Any, set[str]], ...] = (
    ({}, {"/approved"}),
    ({"approved": "maybe"}, {"/approved"}),
    ({"approved": "true"}, {"/approved"}),
    ({"approved": 1}, {"/approved"}),
    ({"approved": None}, {"/approved"}),
    ({"approved": [True]}, {"/approved"}),
    ({"note": "yes"}, {"/approved"}),
    ({"note": 7}, {"/approved", "/note"}),
    ({"approved": "no", "note": ["x"]}, {"/approved", "/note"}),
    ({"approved": True, "note": {"text": "x"}}, {"/note"}),
    ({"approved": True, "aproved": True}, {"/aproved"}),
    ({"Approved": True}, {"/approved", "/Approved"}),
    ({"verdict": {"approved": True}}, {"/approved", "/verdict"}),
    ([], {""}),
    ([{"approved": True}], {""}),
    (None, {""}),
    (True, {""}),
    ("approved", {""}),
    ('{"approved": true}', {""}),
)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_payload_is_refused_by_field_and_does_not_consume_the_gate(build: Build, way: str) -> None:
    fx = Counters()
    point = WaitPoint("q", suspend=Question, resume=Verdict, timeout=timedelta(days=7))
    w = build(asking(way, fx, point=point), model=scripted(call("ask", x=1), say("done"), counters=fx))
    run_id = w.start()
    action = w.the_action(run_id)
    before = w.run(run_id), w.items(run_id)

    for data, paths in BAD_VERDICTS:
        refused = w.answer(action, data)
        assert (refused.status, refused.action_id) == ("invalid", action.id), data
        assert {issue.path for issue in refused.issues} == paths, data
        assert all(issue.message for issue in refused.issues)
    missing = w.send(json.dumps({"v": 1, "action_id": action.id, "kind": "submit"}))
    assert (missing.status, missing.issues[0].message) == ("invalid", "data is missing")

    assert w.the_action(run_id) == action, "id, deadline or schema moved"
    assert (w.run(run_id), w.items(run_id)) == before
    assert (fx["fx"], fx["passes"]) == (0, 1)
    assert w.answer(action, {"approved": True}).status == "accepted"
    assert (w.run(run_id).status, fx["fx"], fx["passes"], fx["model"]) == ("completed", 1, 2, 2)


def test_the_pinned_schema_alone_refuses_the_same(build: Build) -> None:
    w = build(asking("inline", Counters()), model=scripted(call("ask", x=1), say("done")))
    action = w.the_action(w.start())
    s = w.services
    door = Door(store=s.store, parking=s.parking, events=s.events, wakeups=s.wakeups, tuning=s.tuning, app=None)
    for data, paths in BAD_VERDICTS:
        refused = receive(door, json.dumps({"action_id": action.id, "data": data}), channel="test")
        assert (refused.status, {issue.path for issue in refused.issues}) == ("invalid", paths), data
    assert w.status_of(action.id) == "pending"


def test_an_answer_id_may_be_used_again_after_a_refusal(build: Build) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    action = w.the_action(w.start())
    statuses = [
        w.answer(action, data, answer_id="a1").status
        for data in ({}, {"approved": "maybe"}, {"approved": True}, {"approved": True}, {"approved": False})
    ]
    assert statuses == ["invalid", "invalid", "accepted", "duplicate", "late"]
    assert fx["fx"] == 1


class Address(BaseModel):
    street: str
    zip: str


class Order(BaseModel):
    to: Address
    lines: list[Address]
    count: int


def test_every_wrong_field_is_named_at_once_however_deep(build: Build) -> None:
    supervisor = Keeper("inline", "keep", suspend=Question, data=Question(prompt="?"), resume=Order)
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    run_id = w.start()
    action = w.the_action(run_id)
    refused = w.answer(action, {"to": {"street": 1}, "lines": [{"street": "a", "zip": "b"}, {"street": "c"}]})
    assert {issue.path for issue in refused.issues} == {"/to/street", "/to/zip", "/lines/1/zip", "/count"}
    good = {"to": {"street": "a", "zip": "b"}, "lines": [], "count": 0}
    assert w.answer(action, good).status == "accepted"
    (kept,) = supervisor.kept
    assert same(kept.answer, Order(to=Address(street="a", zip="b"), lines=[], count=0))


# --- false, 0 and their like are answers ---------------------------------------------------


class Zero(IntEnum):
    NONE = 0


class Blank(Enum):
    EMPTY = ""


class Lenient(BaseModel):
    note: str | None = None


EMPTY: tuple[tuple[Any, Any, Any], ...] = (
    (bool, False, False),
    (int, 0, 0),
    (float, 0, 0.0),
    (str, "", ""),
    (bytes, "", b""),
    (list[int], [], []),
    (dict[str, int], {}, {}),
    (set[int], [], set()),
    (tuple[int, ...], [], ()),
    (Optional[bool], None, None),  # noqa: UP045 (both ways of writing it are tested)
    (int | None, None, None),
    (int | None, 0, 0),
    (str | None, "", ""),
    (bool | None, False, False),
    (list[str] | None, [], []),
    (list[str | None], [None], [None]),
    (Literal[0, 1], 0, 0),
    (Literal["", "x"], "", ""),
    (Zero, 0, Zero.NONE),
    (Blank, "", Blank.EMPTY),
    (Decimal, "0", Decimal("0")),
    (timedelta, "PT0S", timedelta(0)),
    (Lenient, {}, Lenient()),
    (Lenient | None, None, None),
    (Any, None, None),
    (Any, False, False),
)


@pytest.mark.parametrize("style", BOTH)
def test_empty_values_are_answers_and_re_enter_once_as_they_are(build: Build, style: str) -> None:
    keepers = [
        Keeper(style, f"keep{n}", suspend=Question, data=Question(prompt=str(n)), resume=type_)
        for n, (type_, _, _) in enumerate(EMPTY)
    ]
    w = build(
        *(supervisor.tool for supervisor in keepers),
        model=scripted([call(supervisor.tool.name) for supervisor in keepers], say("done")),
    )
    run_id = w.start()
    actions = {action.origin.tool: action for action in w.pending(run_id)}
    for supervisor, (type_, data, value) in zip(keepers, EMPTY, strict=True):
        assert w.answer(actions[supervisor.tool.name], data).status == "accepted", type_
        assert supervisor.passes == 2, type_
        (kept,) = supervisor.kept
        assert same(kept.answer, value), (type_, kept)
        assert same(kept.in_history, value), (type_, kept)
    assert w.run(run_id).status == "completed"
    assert {output.outcome for output in w.outputs(run_id)} == {"success"}
    assert [supervisor.passes for supervisor in keepers] == [2] * len(keepers)


@pytest.mark.parametrize("style", BOTH)
def test_an_empty_default_answers_an_expired_wait(build: Build, style: str) -> None:
    cases: tuple[tuple[Any, Any], ...] = (
        (bool, False),
        (int, 0),
        (str, ""),
        (str, "error"),
        (list[int], []),
        (int | None, None),
    )
    keepers = [
        Keeper(style, f"keep{n}", suspend=str, data="", resume=type_, timeout=timedelta(seconds=60), default=value)
        for n, (type_, value) in enumerate(cases)
    ]
    w = build(*(k.tool for k in keepers), model=scripted([call(k.tool.name) for k in keepers], say("done")))
    run_id = w.start()
    w.advance(61)
    w.sweep()
    assert w.run(run_id).status == "completed"
    for supervisor, (_, value) in zip(keepers, cases, strict=True):
        assert [(kept.answer, kept.asked) for kept in supervisor.kept] == [(value, "")]


def test_a_missing_value_is_not_a_null_one(build: Build) -> None:
    supervisor = Keeper("inline", "keep", suspend=Question, data=Question(prompt="?"), resume=int | None)
    w = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    assert w.send(json.dumps({"action_id": action.id})).status == "invalid"
    assert w.send(json.dumps({"action_id": action.id, "data": None})).status == "accepted"
    assert [kept.answer for kept in supervisor.kept] == [None]


def test_empty_outputs_and_memos_are_kept_like_any_other(build: Build) -> None:
    fx = Counters()
    memos: list[Any] = []
    empty: tuple[Any, ...] = (False, 0, "", [], None)

    @tool(wait_points=[WaitPoint("q", suspend=Question, resume=Verdict)])
    def ask(ctx: Context) -> bool:
        """Remember empty values across a wait."""

        def remember(value: Any) -> Any:
            fx.bump("remembered")
            return value

        memos.append([ctx.run_once(f"m{n}", partial(remember, value)) for n, value in enumerate(empty)])
        ctx.ask("q", Question(prompt="?"))
        return False

    plain = [returning(f"give{n}", value) for n, value in enumerate((*empty, {}))]
    w = build(ask, *plain, model=scripted([call("ask"), *(call(each.name) for each in plain)], say("")))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": True})
    assert memos == [list(empty)] * 2
    assert fx["remembered"] == 5
    given = {output.tool: output.content for output in w.outputs(run_id)}
    assert same(given.pop("ask"), False)
    assert [repr(given[each.name]) for each in plain] == ["False", "0", "''", "[]", "None", "{}"]
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", "")


def returning(name: str, value: Any) -> Tool[..., Any]:
    return tool(name=name, description="Give something empty.", output=Any)(lambda: value)


# --- under another name or kind ------------------------------------------------------------


def test_right_id_under_another_name_or_kind_is_refused(build: Build) -> None:
    fx = Counters()
    other = WaitPoint("other", suspend=Question, resume=Verdict)
    w = build(
        asking("inline", fx),
        asking("inline", fx, name="ask_too", point=other),
        model=scripted([call("ask", x=1), call("ask_too", x=2)], say("done")),
    )
    run_id = w.start()
    actions = {action.name: action for action in w.pending(run_id)}
    gate = actions["ask.q"]
    yes = {"approved": True}

    for name in ("ask_too.other", "ask.other", "ask_too.q", "ask", "q", "ask.Q", "ask.q ", ".q", "ask.q.q"):
        for kind in ({"data": yes}, {"kind": "cancel"}, {"kind": "fail", "message": "m"}):
            assert w.answer(gate, **kind, name=name).status == "invalid", (name, kind)
    for kind in ("Submit", "SUBMIT", "approve", "approval", "result", "tool_result", "resume", "", " submit", None, 1):
        assert w.answer(gate, yes, kind=kind).status == "malformed", kind
    for more in ({"type": "submit"}, {"status": "submitted"}, {"category": "approval"}, {"ok": True}):
        assert w.send(json.dumps({"action_id": gate.id, "data": yes, **more})).status == "malformed", more
    for version in (0, 2, "1", None, 1.5):
        assert w.send(json.dumps({"v": version, "action_id": gate.id, "data": yes})).status == "malformed", version

    assert sorted(action.name for action in w.pending(run_id)) == ["ask.q", "ask_too.other"]
    assert (w.run(run_id).status, fx["fx"]) == ("parked", 0)
    assert w.answer(gate, yes, name="ask.q").status == "accepted"
    assert fx["fx:1"] == 1
    assert [action.name for action in w.pending(run_id)] == ["ask_too.other"]
    assert w.answer(actions["ask_too.other"], yes, name="ask_too.other").status == "accepted"


@pytest.mark.parametrize("kind", ["cancel", "fail"])
@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_that_carries_data_is_no_submit(build: Build, way: str, kind: str) -> None:
    fx = Counters()
    w = build(asking(way, fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.start()
    assert w.answer(w.the_action(run_id), kind=kind, data={"approved": True}).status == "accepted"
    (output,) = w.outputs(run_id)
    assert (output.outcome, fx["fx"]) == ({"cancel": "declined", "fail": "failed"}[kind], 0)


# --- generic models ------------------------------------------------------------------------


class Envelope(BaseModel, Generic[T]):
    data: T


class Pair(BaseModel, Generic[T]):
    first: Envelope[T]
    second: Envelope[list[T]]


GENERIC: tuple[tuple[Any, Any, Any, str], ...] = (
    (Envelope[int], {"data": 3}, Envelope[int](data=3), "/data"),
    (Envelope[int | None], {"data": None}, Envelope[int | None](data=None), "/data"),
    (Envelope[dict[str, int]], {"data": {"a": 3}}, Envelope[dict[str, int]](data={"a": 3}), "/data"),
    (
        Envelope[Envelope[int]],
        {"data": {"data": 3}},
        Envelope[Envelope[int]](data=Envelope[int](data=3)),
        "/data",
    ),
    (
        Pair[int],
        {"first": {"data": 3}, "second": {"data": [3]}},
        Pair[int](first=Envelope[int](data=3), second=Envelope[list[int]](data=[3])),
        "/first",
    ),
    (list[Envelope[int]], [{"data": 3}], [Envelope[int](data=3)], "/0"),
)
LEGAL = re.compile(r"[A-Za-z0-9._-]+")


@pytest.mark.parametrize("style", BOTH)
def test_generic_models_have_legal_names_and_come_back(build: Build, style: str) -> None:
    keepers = [
        Keeper(style, f"keep{n}", suspend=type_, data=value, resume=type_)
        for n, (type_, _, value, _) in enumerate(GENERIC)
    ]
    requests: list[ModelRequest] = []
    script = [[call("take", value={"data": 3}, more={"data": [{"data": 4}]}), *(call(k.tool.name) for k in keepers)]]
    model = ScriptedModel([*script, say("done")], on_request=requests.append)
    taken: list[Any] = []

    @tool
    def take(value: Envelope[int], more: Envelope[list[Envelope[int]]]) -> Envelope[int]:
        """Take generic models as they come."""
        taken.append((value, more))
        return value

    w = build(take, *(supervisor.tool for supervisor in keepers), model=model)
    run_id = w.start()
    actions = {action.origin.tool: action for action in w.pending(run_id)}
    schemas = [spec.input_schema for spec in requests[0].tools] + [a.resume_schema for a in actions.values()]
    names = [name for schema in schemas for name in names_in(schema)]
    assert names
    assert [name for name in names if not LEGAL.fullmatch(name)] == []

    for supervisor, (type_, data, value, path) in zip(keepers, GENERIC, strict=True):
        action = actions[supervisor.tool.name]
        broken = {"data": "3"} if isinstance(data, dict) and "data" in data else [{"data": "3"}]
        if isinstance(data, dict) and "first" in data:
            broken = {**data, "first": {"data": "3"}}
        refused = w.answer(action, broken)
        assert refused.status == "invalid", type_
        assert any(issue.path.startswith(path) for issue in refused.issues), refused.issues
        assert w.answer(action, data).status == "accepted", type_
        (kept,) = supervisor.kept
        assert same(kept.answer, value)
        assert same(kept.asked, value)
    assert same(taken, [(Envelope[int](data=3), Envelope[list[Envelope[int]]](data=[Envelope[int](data=4)]))])
    assert w.run(run_id).status == "completed"


def names_in(schema: Any) -> Iterator[str]:
    """Names of definitions, where they are made and where they are pointed at."""
    if isinstance(schema, dict):
        yield from schema.get("$defs", {})
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix("#/$defs/")
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from names_in(value)


def test_two_models_of_one_name_keep_their_own_schemas(build: Build) -> None:
    def local(type_: Any) -> Any:
        class Form(BaseModel):
            data: type_

        return Form

    number, text = local(int), local(str)
    supervisor = Keeper("inline", "keep", suspend=str, data="?", resume=Envelope[tuple[number, text]])
    w: World = build(supervisor.tool, model=scripted(call("keep"), say("done")))
    action = w.the_action(w.start())
    assert w.answer(action, {"data": [{"data": "a"}, {"data": "a"}]}).issues[0].path == "/data/0/data"
    assert w.answer(action, {"data": [{"data": 3}, {"data": 3}]}).issues[0].path == "/data/1/data"
    assert w.answer(action, {"data": [{"data": 3}, {"data": "a"}]}).status == "accepted"
