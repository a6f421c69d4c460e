"""The answer to an undeclared wait has the type that the ask gave, in `ctx.entry` and in the history as well."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, create_model

from adjourn import Agent, App, Context, Resume, Tool, call, say, tool
from adjourn.tasks.context.undeclared_types import reference_to, referenced
from tests.flow.conftest import Plant
from tests.world import AGENT, World, scripted

T = TypeVar("T")


class Yes(BaseModel):
    approved: bool


class Color(Enum):
    RED = "red"


class Envelope(BaseModel, Generic[T]):
    data: T


@dataclasses.dataclass
class Note:
    text: str
    on: date


ANSWERS: dict[str, tuple[Any, Any, Any]] = {
    "model": (Yes, {"approved": True}, Yes(approved=True)),
    "dataclass": (Note, {"text": "a", "on": "2026-01-01"}, Note("a", date(2026, 1, 1))),
    "list": (list[Yes], [{"approved": True}], [Yes(approved=True)]),
    "dict": (dict[int, Yes], {"1": {"approved": True}}, {1: Yes(approved=True)}),
    "union": (Yes | Note | None, {"approved": False}, Yes(approved=False)),
    "generic": (Envelope[Yes], {"data": {"approved": True}}, Envelope[Yes](data=Yes(approved=True))),
    "enum": (Color, "red", Color.RED),
    "literal": (Literal["a", 1], 1, 1),
    "tuple": (tuple[date, ...], ["2026-01-01"], (date(2026, 1, 1),)),
    "date": (date, "2026-01-01", date(2026, 1, 1)),
    "anything": (Any, {"a": 1}, {"a": 1}),
}


def asking(resume: Any, seen: list[Any], **options: Any) -> Tool[..., Any]:
    @tool(name="act", **options)
    def act(ctx: Context) -> str:
        if isinstance(ctx.entry, Resume):
            seen.extend([ctx.entry.resume, ctx.suspend_history[0].resume, ctx.answer and ctx.answer.data])
        first = ctx.ask(reason="first", message="?", resume=resume)
        if isinstance(ctx.entry, Resume):
            seen.extend([ctx.entry.resume, ctx.suspend_history[0].resume])
        ctx.ask(reason="second", message="?", resume=bool)
        seen.append(ctx.suspend_history[0].resume)
        return type(first).__name__

    return act


def app_of(act: Tool[..., Any]) -> App:
    return App(agents=[Agent(AGENT, scripted(call("act"), say("done")), tools=[act])])


def answered(plant: Plant, act: Tool[..., Any], data: Any) -> tuple[World, str]:
    w = plant(*app_of(act).blocks.values())
    run_id = w.start()
    assert w.answer(w.the_action(run_id), data).status == "accepted"
    return w, run_id


@pytest.mark.parametrize("what", ANSWERS)
def test_entry_and_history_have_the_type_of_the_ask(plant: Plant, what: str) -> None:
    type_, data, value = ANSWERS[what]
    seen: list[Any] = []
    w, run_id = answered(plant, asking(type_, seen), data)
    assert seen == [value] * 5
    assert {type(each) for each in seen} == {type(value)}
    w.answer(w.the_action(run_id), True)
    assert seen[5:] == [True, value, True, True, value, value]
    assert w.outputs(run_id)[0].content == type(value).__name__


def test_a_class_of_a_function_is_found_where_the_body_uses_it(plant: Plant) -> None:
    class Local(BaseModel):
        approved: bool

    seen: list[Any] = []

    @tool(name="act")
    def act(ctx: Context) -> str:
        if isinstance(ctx.entry, Resume):
            seen.append(ctx.entry.resume)
        ctx.ask(reason="first", message="?", resume=list[Local])
        return "done"

    answered(plant, act, [{"approved": True}])
    assert seen == [[Local(approved=True)]]


def test_a_type_without_a_name_is_known_once_the_body_has_asked(plant: Plant) -> None:
    shout: Any = Annotated[Yes, Field(description="shouted")]
    seen: list[Any] = []
    answered(plant, asking(shout, seen), {"approved": True})
    plain, typed = {"approved": True}, Yes(approved=True)
    assert seen == [plain, plain, plain, typed, typed]


def test_a_keyed_ask_has_its_own_type(plant: Plant) -> None:
    seen: list[Any] = []

    @tool(name="act")
    def act(ctx: Context) -> str:
        ctx.ask(reason="first", message="?", resume=Yes, key="a")
        ctx.ask(reason="first", message="?", resume=Color, key="b")
        seen.extend(record.resume for record in ctx.suspend_history)
        return "done"

    w, run_id = answered(plant, act, {"approved": True})
    w.answer(w.the_action(run_id), "red")
    assert seen == [Yes(approved=True), Color.RED]


def test_a_default_at_a_deadline_is_typed_too(plant: Plant) -> None:
    seen: list[Any] = []

    @tool(name="act")
    def act(ctx: Context) -> str:
        if isinstance(ctx.entry, Resume):
            seen.append(ctx.entry.resume)
        terms: dict[str, Any] = {"timeout": timedelta(minutes=1), "default": Yes(approved=False)}
        ctx.ask(reason="first", message="?", resume=Yes, **terms)
        return "done"

    w = plant(*app_of(act).blocks.values())
    w.start()
    w.advance(61)
    w.sweep()
    assert seen == [Yes(approved=False)]


def test_a_type_that_a_deploy_has_changed_is_not_put_over_the_answer(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    w = plant(*app_of(asking(Yes, seen)).blocks.values())
    run_id = w.start()
    action = w.the_action(run_id)
    changed = create_model("Yes", __module__=__name__, approved=(bool, ...), by=(str, ...))
    monkeypatch.setattr(sys.modules[__name__], "Yes", changed)
    w.deploy(app_of(asking(changed, seen)))
    w.answer(action, {"approved": True})
    assert seen == [{"approved": True}] * 3
    run = w.run(run_id)
    assert run.error is not None
    assert (run.status, run.error.type) == ("failed", "ToolChangedError")
    assert w.status_of(action.id) == "submitted"


@pytest.mark.parametrize("what", ANSWERS)
def test_a_type_is_found_again_by_the_names_that_it_is_made_of(what: str) -> None:
    type_ = ANSWERS[what][0]
    assert referenced(reference_to(type_), None) == type_


REFERENCES: list[Any] = [
    {"class": ["os", "system"]},
    {"class": ["no.such.module", "Model"]},
    {"class": ["builtins", "no_such_class"]},
    {"class": ["tests.flow.test_undeclared_types", "REFERENCES"]},
    {"of": {"class": ["builtins", "list"]}, "parts": [{"class": ["nowhere", "X"]}]},
    {"name": "nothing"},
    {},
    None,
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_names_that_are_no_type_here_are_no_type(reference: Any) -> None:
    assert referenced(reference, None) is None


def test_nothing_is_imported_for_a_name() -> None:
    code = (
        "import sys\nfrom adjourn.tasks.context.undeclared_types import referenced\n"
        "assert referenced({'class': ['wave', 'Wave_read']}, None) is None\nassert 'wave' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_class_is_found_where_its_module_has_it() -> None:
    def used() -> Any:
        return Yes

    assert referenced({"class": [__name__, "Yes"]}, used) is Yes
