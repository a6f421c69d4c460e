"""The short answer keeps all that it says, whichever way it comes; ids that are not text; failures by exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from adjourn import (
    Agent,
    AnswerFailed,
    AnswerRefusedError,
    Client,
    Context,
    Declined,
    PendingAction,
    ShortAnswer,
    tool,
)
from adjourn.schemas.records.entries import RequestAnswer
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.config.settings import Settings
from tests.world import AGENT, World

Plant = Callable[..., World]


def asking(seen: list[RequestAnswer | None], id: Any = "req-1") -> Block:
    @tool(name="act", reenter_on=("cancelled", "failed"))
    def act(ctx: Context) -> str:
        """Asks once, and notes its answer."""
        seen.append(ctx.answer)
        if ctx.answer is None:
            ctx.request(id=id, prompt="Act?")
        return "acted"

    return act


def agent(*tools: Block, **options: Any) -> Agent:
    return Agent(AGENT, ScriptedModel([call("act"), say("done")]), tools=tools, **options)


@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize("data", [None, {"amount": 7}])
@pytest.mark.parametrize("reason", [None, "because"])
@pytest.mark.parametrize("way", ["queue", "client", "resolver", "resolver by dict", "long"])
def test_a_tool_reads_all_that_was_said(
    plant: Plant, database_url: str, redis_url: str, ok: bool, data: Any, reason: str | None, way: str
) -> None:
    seen: list[RequestAnswer | None] = []
    short = {"ok": ok, "data": data, "reason": reason}

    def resolver(action: PendingAction) -> Any:
        if way == "resolver":
            return ShortAnswer(id="req-1", **short)
        return short if way == "resolver by dict" else None

    w = plant(agent(asking(seen), resolver=resolver if way.startswith("resolver") else None))
    run_id = w.start()
    if way == "queue":
        assert w.send(json.dumps({"id": "req-1", **short})).status == "accepted"
    elif way == "long":
        kind = "submit" if ok else "cancel"
        document = {"action_id": "req-1", "kind": kind, "data": data, "reason": reason}
        assert w.send(json.dumps(document)).status == "accepted"
    elif way == "client":
        with Client(Settings(database_url=database_url, redis_url=redis_url)) as client:
            assert client.resume(id="req-1", **short).status == "accepted"
        w.sweep()
        w.wakeups.publish(w.wakeups.published[0].model_copy(update={"run_id": run_id, "due": "reentry"}))
        w.settle()
    assert w.run(run_id).status == "completed"
    assert seen == [None, RequestAnswer(id="req-1", ok=ok, data=data, reason=reason)]


def test_the_same_words_with_another_reason_are_another_answer(plant: Plant) -> None:
    w = plant(agent(asking([])))
    w.start()
    yes = {"id": "req-1", "ok": True, "data": {"a": 1}, "reason": "first", "answer_id": "x"}
    (action,) = w.pending()
    assert w.send(json.dumps(yes)).status == "accepted"
    assert w.send(json.dumps({**yes, "id": action.id})).status == "duplicate"
    assert w.send(json.dumps({**yes, "id": action.id, "reason": "second"})).status == "late"


def test_an_uncaught_refusal_carries_what_was_said(plant: Plant) -> None:
    caught: list[Any] = []

    @tool
    def act(ctx: Context) -> str:
        """Asks inline."""
        try:
            return str(ctx.ask(reason="go", message="Act?", resume=bool))
        except (Declined, AnswerFailed) as refused:
            caught.append((type(refused).__name__, refused.data))
            return "no"

    for kind, name in (("cancel", "Declined"), ("fail", "AnswerFailed")):
        w = plant(agent(act))
        run_id = w.start()
        words = {"message": "lost"} if kind == "fail" else {}
        w.send(json.dumps({"action_id": w.the_action(run_id).id, "kind": kind, "data": {"by": 7}, **words}))
        assert caught.pop() == (name, {"by": 7})


UUID_TEXT = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("chosen", "stored", "named"),
    [
        (7, "7", 7),
        (7, "7", "7"),
        (1.5, "1.5", 1.5),
        (True, "true", True),
        (["a", 1], '["a",1]', ["a", 1]),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}', {"a": 2, "b": 1}),
        (UUID(UUID_TEXT), UUID_TEXT, UUID_TEXT),
        ("seven", "seven", "seven"),
    ],
    ids=str,
)
def test_an_id_that_is_not_text_is_taken_as_its_json(plant: Plant, chosen: Any, stored: str, named: Any) -> None:
    seen: list[RequestAnswer | None] = []
    w = plant(agent(asking(seen, chosen)))
    run_id = w.start()
    assert w.the_action(run_id).request_id == stored
    assert w.send(json.dumps({"id": named, "ok": True})).status == "accepted"
    assert seen[-1] == RequestAnswer(id=stored, ok=True)


@pytest.mark.parametrize("chosen", [object(), b"\xff", "", "x" * 201, float("nan")], ids=lambda each: repr(each)[:20])
def test_an_id_that_no_answer_could_name_is_refused_in_words_that_the_model_reads(plant: Plant, chosen: Any) -> None:
    w = plant(agent(asking([], chosen)))
    run_id = w.start()
    assert w.pending() == []
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert "act.request" in output.content
    assert "request id" in output.content
    assert "Attribute" not in output.content


@pytest.mark.parametrize("point_of", ["ask", "suspend"])
def test_other_waits_take_such_ids_too(plant: Plant, point_of: str) -> None:
    @tool
    def act(ctx: Context) -> str:
        """Asks with a number as its id."""
        return str(ctx.ask(reason="go", message="Act?", resume=bool, request_id=7))  # type: ignore[arg-type]

    w = plant(agent(act))
    run_id = w.start()
    assert w.the_action(run_id).request_id == "7"


def test_null_as_an_id_is_malformed(plant: Plant) -> None:
    w = plant(agent(asking([])))
    w.start()
    receipt = w.send(json.dumps({"id": None, "ok": True}))
    assert receipt.status == "malformed"
    assert "/id: an id is text, or another JSON value that is not null; got null" in receipt.detail


def test_a_resolver_that_answers_in_short_answers_the_action_that_it_was_given(plant: Plant) -> None:
    seen: list[RequestAnswer | None] = []
    asked = plant(agent(asking([])))
    asked.start()  # another open action with the same request id
    w = plant(agent(asking(seen), resolver=lambda action: {"id": "req-1", "ok": True}))
    assert w.run(w.start()).status == "completed"
    assert seen[-1] == RequestAnswer(id="req-1", ok=True)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("lost", "lost"),
        (OSError("disk full"), "OSError: disk full"),
        (KeyboardInterrupt("stop"), "KeyboardInterrupt: stop"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two (1 sub-exception)"),
        (Silent(), "Silent: (its message cannot be read)"),
        (ValueError("x" * 20_000), ("ValueError: " + "x" * 20_000)[:10_000]),
    ],
    ids=lambda each: str(type(each).__name__),
)
def test_a_failure_is_a_text_or_an_exception(
    plant: Plant, database_url: str, redis_url: str, given: str | BaseException, read: str
) -> None:
    w = plant(agent(asking([])))
    w.start()
    (action,) = w.pending()
    with Client(Settings(database_url=database_url, redis_url=redis_url)) as client:
        assert client.fail(action.id, message=given).status == "accepted"
        ended = client.action(action.id).resolution
        assert ended is not None
        assert ended.message == read
        with pytest.raises(AnswerRefusedError) as late:
            client.fail(action.id, message=OSError("again"))
        assert late.value.status == "late"
