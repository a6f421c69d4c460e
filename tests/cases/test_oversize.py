"""What is too large is said once, as a tool error that names the limit, and never tried again."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from adjourn import App, Client, Context, Tool, WaitPoint, tool
from adjourn.schemas.errors import TooLargeError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.messages import ModelRequest
from adjourn.schemas.records.runs import WakeUp
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.config.settings import load_settings
from tests.cases.conftest import Build
from tests.cases.tools import Question, Verdict, asking
from tests.world import AGENT, Counters, scripted

q = WaitPoint("q", suspend=Question, resume=Verdict)

SMALL = Tuning(max_output_bytes=5_000, max_history_bytes=40_000, max_message_bytes=2_000)
BIG = "x" * 6_000


def _raise(text: str) -> str:
    raise ValueError(text)


OVERSIZE: dict[str, tuple[str, Any]] = {
    "output": ("the output of big has 6002 bytes", lambda ctx: BIG),
    "nested output": ("the output of big has", lambda ctx: {"a": [BIG]}),
    "output in other letters": ("the output of big has 6002 bytes", lambda ctx: "é" * 3_000),
    "error": ("the error of big has", lambda ctx: _raise(BIG)),
    "suspend": ("the suspend of big has", lambda ctx: ctx.ask(q, Question(prompt=BIG))),
    "prompt": ("the suspend of big has", lambda ctx: ctx.ask(q, Question(prompt="?"), prompt=BIG)),
    "memo": ("the result of run_once('m') has 6002 bytes", lambda ctx: ctx.run_once("m", lambda: BIG)),
}


@pytest.mark.parametrize("what", OVERSIZE)
def test_oversize_is_a_tool_error_that_names_the_limit_after_one_attempt(build: Build, what: str) -> None:
    says, act = OVERSIZE[what]
    fx = Counters()

    def big(ctx: Context) -> Any:
        fx.bump("passes")
        return act(ctx)

    w = build(
        tool(description="Say too much.", wait_points=[q], output=Any, retries=0)(big),
        model=scripted(call("big"), say("noted"), counters=fx),
        tuning=SMALL,
    )
    run_id = w.start()
    (output,) = w.outputs(run_id)
    assert output.outcome == "error"
    assert says in output.content
    assert "the limit is 5000 bytes" in output.content
    assert (w.run(run_id).status, w.run(run_id).output) == ("completed", "noted")
    assert (fx["passes"], fx["model"], w.run(run_id).deaths) == (1, 2, 0)
    assert w.pending(run_id) == []


def test_an_oversize_output_is_not_one_of_the_retries(build: Build) -> None:
    fx = Counters()
    w = build(giving("big", BIG, fx, retries=3), model=scripted(call("big"), say("noted")), tuning=SMALL)
    run_id = w.start()
    assert (w.run(run_id).status, fx["big"]) == ("completed", 1)


def test_an_oversize_output_after_an_answer_is_a_tool_error(build: Build) -> None:
    fx = Counters()

    @tool(wait_points=[q])
    def big(ctx: Context) -> str:
        """Say too much, once asked."""
        fx.bump("passes")
        ctx.ask(q, Question(prompt="?"))
        return BIG

    w = build(big, model=scripted(call("big"), say("noted")), tuning=SMALL)
    run_id = w.start()
    assert w.answer(w.the_action(run_id), {"approved": True}).status == "accepted"
    assert "the limit is 5000 bytes" in w.outputs(run_id)[0].content
    assert (w.run(run_id).status, fx["passes"]) == ("completed", 2)


def test_an_output_at_the_limit_is_kept_whole(build: Build) -> None:
    fx = Counters()
    exact = "x" * (SMALL.max_output_bytes - 2)
    w = build(giving("big", exact, fx), model=scripted(call("big"), say("noted")), tuning=SMALL)
    run_id = w.start()
    assert w.outputs(run_id)[0].content == exact


def test_outputs_that_together_are_over_the_history_are_tool_errors(build: Build) -> None:
    fx = Counters()
    calls = 12
    w = build(
        giving("much", "x" * 4_500, fx),
        model=scripted([call("much") for _ in range(calls)], say("noted"), counters=fx),
        tuning=SMALL,
    )
    run_id = w.start()
    outputs = w.outputs(run_id)
    refused = [output for output in outputs if output.outcome == "error"]
    assert 0 < len(refused) < calls
    for output in refused:
        assert "the history of this thread with the output of much has" in output.content
        assert "the limit is 40000 bytes" in output.content
    assert (w.run(run_id).status, fx["much"], fx["model"]) == ("completed", calls, 2)


def test_a_history_that_grows_turn_by_turn_ends_in_a_tool_error_and_then_in_a_clear_failure(build: Build) -> None:
    fx = Counters()

    def script(_: ModelRequest) -> Any:
        return call("much")

    w = build(
        giving("much", "x" * 4_500, fx),
        model=ScriptedModel(script, on_request=lambda _: fx.bump("model")),
        tuning=SMALL,
    )
    run_id = w.start(limits=Limits(turns=300))
    run = w.run(run_id)
    outcomes = [output.outcome for output in w.outputs(run_id)]
    assert outcomes[0] == "success"
    assert "error" in outcomes
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "HistoryTooLargeError"
    assert "the limit is 40000 bytes" in run.error.message
    assert fx["model"] == run.turns < 300

    again = w.run(w.start("and?", thread_id=run.thread_id))
    assert (again.status, again.turns) == ("failed", 0)
    assert again.error is not None
    assert run.thread_id in again.error.message


def test_a_history_over_the_limit_does_not_spoil_another_thread(build: Build) -> None:
    fx = Counters()
    w = build(model=scripted(say("x" * 45_000)), tuning=SMALL)
    first = w.start()
    assert w.run(first).status == "completed", "the answer of the model is there, whatever its size"
    assert w.run(w.start("and?", thread_id=w.run(first).thread_id)).status == "failed"
    assert w.run(w.start()).status == "completed"
    assert fx["fx"] == 0


def test_what_a_claim_counts_is_what_is_stored(build: Build) -> None:
    w = build(asking("inline", Counters()), model=scripted(call("ask", x=1), say("done")))
    first = w.start("é" * 100)
    w.answer(w.the_action(first), {"approved": True, "note": "é" * 100})
    second = w.start(thread_id=w.run(first).thread_id)
    w.start("another thread's items do not count")
    w.answer(w.the_action(second), {"approved": True}, settle=False)
    claim = runs.claim(w.db, second, suspect=False, token="t")
    assert claim is not None
    of_both = sa.text("select sum(octet_length(body)) as bytes from adjourn.items where run_id in (:first, :second)")
    assert claim.history_bytes == w.db.one(of_both, {"first": first, "second": second}).bytes
    runs.put_back(w.db, [(second, "t")])
    w.settle()


def test_a_long_message_is_refused_at_the_start_and_starts_nothing(
    database_url: str, redis_url: str, build: Build
) -> None:
    w = build(model=scripted(say("done")), tuning=SMALL)
    settings = load_settings(database_url=database_url, redis_url=redis_url, tuning=SMALL)
    with Client(settings, app=App(blocks=list(w.app.blocks.values()))) as client:
        for text in ("x" * 2_001, "é" * 1_001, "\x00" * 700):
            with pytest.raises(TooLargeError, match="the limit is 2000 bytes"):
                client.start(AGENT, text)
        assert not client.threads()
        busy = client.start(AGENT, "x" * 2_000)
        with pytest.raises(TooLargeError):
            client.thread(busy.thread_id).send("x" * 2_001, when_busy="supersede")
        assert client.get_run(busy.id).status == "queued", "cancelled for a message that was refused"
        w.wakeups.publish(WakeUp(run_id=busy.id, due="turn"))
        w.settle()
        assert client.get_run(busy.id).output == "done"


def giving(name: str, value: Any, fx: Counters, **options: Any) -> Tool[..., Any]:
    def body(ctx: Context) -> Any:
        fx.bump(name)
        return value

    return tool(name=name, description="Give it.", output=Any, **options)(body)
