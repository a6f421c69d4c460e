"""Values come back as they went, or say so in time: through whole runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field, field_serializer

from adjourn import Agent, Client, Context, Sequential, WaitPoint, tool
from adjourn.schemas.records.messages import ModelRequest, UserTurn
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.config.settings import load_settings
from tests.cases.conftest import Build, Plant
from tests.cases.tools import Verdict
from tests.world import Counters, scripted


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[Client]:
    with Client(load_settings(database_url=database_url, redis_url=redis_url)) as made:
        yield made


class Sent(BaseModel):
    to: str
    secret: str = Field(exclude=True)
    size: int = 0

    @field_serializer("size")
    def _write(self, value: int) -> str:
        return f"{value} bytes"


def test_a_mail_that_was_sent_is_not_sent_again_for_the_form_of_its_receipt(build: Build) -> None:
    counters = Counters()

    @tool
    def send() -> Sent:
        """Send the mail."""
        counters.bump("sent")
        return Sent(to="ann", secret="s", size=3)

    w = build(send, model=scripted(call("send"), say("done")))
    run_id = w.start()
    assert [(each.outcome, each.content) for each in w.outputs(run_id)] == [
        ("success", {"to": "ann", "size": "3 bytes"})
    ]
    assert (counters["sent"], w.run(run_id).status) == (1, "completed")


def test_a_final_output_of_such_a_form_is_taken_at_once(plant: Plant) -> None:
    model = ScriptedModel([call("final_result", to="ann", secret="s"), say("never asked")])
    w = plant(Agent("agent", model, output_type=Sent))
    run = w.run(w.start("go", agent="agent"))
    assert (run.status, run.output, run.turns) == ("completed", {"to": "ann", "size": "0 bytes"}, 1)


class Made(BaseModel):
    id: UUID = Field(default_factory=uuid4)


def test_a_final_output_in_text_is_made_once(plant: Plant) -> None:
    seen: list[UUID] = []
    q = WaitPoint("q", suspend=str, resume=str)

    @tool(wait_points=[q])
    def file(ctx: Context, made: Made) -> str:
        """File it."""
        seen.append(made.id)
        ctx.ask(q, "file it?")
        return str(made.id)

    w = plant(Sequential("work", [Agent("agent", ScriptedModel([say("{}")]), output_type=Made), file]))
    run_id = w.start("go", agent="work")
    w.deploy(w.app)
    assert w.answer(w.the_action(run_id), "yes").status == "accepted"
    first, second = seen
    assert first == second
    assert w.run(run_id).output == str(first)


class Ask(BaseModel):
    prompt: str = "Well?"
    note: str | None = None
    limit: int | None = 3


class Change(BaseModel):
    name: str | None = None
    size: int | None = None


def test_unset_and_null_stay_apart_in_what_is_asked_answered_and_remembered(build: Build) -> None:
    seen: list[dict[str, set[str]]] = []
    q = WaitPoint("q", suspend=Ask, resume=Change)

    @tool(wait_points=[q])
    def change(ctx: Context) -> str:
        """Change it."""
        memo = ctx.run_once("memo", lambda: Change(size=None), returns=Change)
        answer = ctx.ask(q, Ask(note=None))
        [record] = ctx.suspend_history
        seen.append(
            {
                "memo": memo.model_fields_set,
                "asked": record.input.model_fields_set,
                "answer": answer.model_fields_set,
            }
        )
        return "done"

    w = build(change, model=scripted(call("change"), say("done")))
    run_id = w.start()
    w.deploy(w.app)
    action = w.the_action(run_id)
    assert (action.prompt, action.input) == ("Well?", {"prompt": "Well?", "note": None, "limit": 3})
    assert w.answer(action, {"name": None}).status == "accepted"
    assert seen == [{"memo": {"size"}, "asked": {"note"}, "answer": {"name"}}]


def test_a_later_run_shows_what_the_model_was_told(plant: Plant, client: Client) -> None:
    asked: list[ModelRequest] = []
    number = itertools.count(1)

    class Order(BaseModel):
        item: str

    @tool
    def look() -> str:
        """Look it up."""
        return "found"

    model = ScriptedModel([call("look"), say("first"), say("second")], on_request=asked.append)
    w = plant(
        Agent(
            "agent",
            model,
            tools=[look],
            input_type=Order,
            prompt=lambda order: f"{next(number)}: please get {order.item}",
        )
    )
    for item in ("tea", "milk"):
        run = client.start("agent", Order(item=item), thread_id="thread_told")
        w.wakeups.publish(WakeUp(run_id=run.id, due="turn"))
        w.settle()
    told: list[list[Any]] = [
        [turn.text for turn in request.conversation if isinstance(turn, UserTurn)] for request in asked
    ]
    assert told[:2] == [["1: please get tea"]] * 2
    assert told[-1] == ["1: please get tea", "2: please get milk"]


def test_a_value_that_json_would_change_opens_nothing(build: Build) -> None:
    q: WaitPoint[bytes | str, Verdict] = WaitPoint("q", suspend=bytes | str, resume=Verdict)  # type: ignore[arg-type]
    note: bytes | str = "note"

    @tool(wait_points=[q])
    def ask(ctx: Context) -> str:
        """Ask."""
        ctx.ask(q, note)
        return "asked"

    w = build(ask, model=scripted(call("ask"), say("done")))
    run_id = w.start()
    assert w.pending(run_id) == []
    [output] = w.outputs(run_id)
    assert output.outcome == "error"
    assert "went as str, comes back as bytes" in output.content
