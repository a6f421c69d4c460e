"""Celery, Redis and Postgres: what breaks workers elsewhere, done to real ones."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
import sqlalchemy as sa

from adjourn import Context, tool
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.items import OutputItem
from adjourn.schemas.records.messages import ModelRequest, UserTurn
from adjourn.store.postgres.answers import actions
from adjourn.store.postgres.runs import starts as runs
from adjourn.tasks.host.wakeups import RESUME_QUEUE
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.worker.broker.brokers import resume_broker
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.cases.conftest import Build
from tests.cases.tools import Question, asking, q
from tests.conftest import Deploy, ProcessFactory
from tests.deployment import ROOT, Deployment
from tests.odd_errors import ODD_ERRORS
from tests.waiting import LIMIT_SECONDS, wait_until
from tests.world import Counters, scripted, world

pytestmark = pytest.mark.timeout(300)  # processes, which start slowly on a machine that is busy
YES = {"approved": True}
"""The next message after a reconnect is handled within this."""

# --- SIGKILL --------------------------------------------------------------------------------


def test_a_run_survives_the_kill_of_its_process_and_then_of_its_whole_worker(deploy: Deploy) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        run = d.client.start("steps", "go")
        assert d.noted("second") == worker.pid
        worker.kill()

        worker = d.worker()
        child = d.noted("second", 2)
        assert child != worker.pid, "a run that had lost a worker was tried in one that serves others"
        os.kill(child, signal.SIGKILL)
        d.noted("second", 3)
        worker.kill()

        d.worker()
        d.noted("second", 4)
        d.effects.release("second")
        ended = d.ended(run)
        assert (ended.status, ended.output, ended.turns, ended.deaths) == ("completed", "done", 2, 0)
        assert d.effects.count("first") == 1, "a finished tool was run again"
        assert contents(d, run.id) == {"first": "first", "second": "second"}


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_process_that_is_told_to_stop_gives_its_run_back_and_is_no_death(
    deploy: Deploy, sign: signal.Signals
) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        run = d.client.start("steps", "go")
        d.noted("second")
        worker.kill()
        d.worker()
        os.kill(d.noted("second", 2), sign)
        d.noted("second", 3)
        assert d.client.get_run(run.id).deaths == 1, "only the kill was a death"
        d.effects.release("second")
        assert d.ended(run).status == "completed"
        assert contents(d, run.id) == {"first": "first", "second": "second"}


def test_a_run_survives_the_kill_of_its_worker_in_the_middle_of_a_model_call(deploy: Deploy) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        run = d.client.start("held", "go")
        assert d.noted("model") == worker.pid
        worker.kill()
        d.worker()
        d.noted("model", 2)
        d.effects.release("model")
        ended = d.ended(run)
        assert (ended.status, ended.turns, ended.usage.requests) == ("completed", 1, 1)


def test_a_parked_run_and_its_answer_survive_the_kill_of_every_worker(deploy: Deploy) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        run = d.parked("asker")
        (action,) = d.client.pending(run_id=run.id)
        worker.kill()
        assert d.client.submit(action.id, YES).status == "accepted"
        d.worker()
        assert d.ended(run).status == "completed"
        assert (d.effects.count("ask"), d.effects.count("fx")) == (2, 1)


def contents(d: Deployment, run_id: str) -> dict[str, Any]:
    bodies = [item.body for item in d.client.items(run_id)]
    outputs = [body for body in bodies if isinstance(body, OutputItem)]
    assert len({output.call_id for output in outputs}) == len(outputs)
    return {output.tool: output.content for output in outputs}


# --- dropped connections ---------------------------------------------------------------------


@pytest.mark.parametrize("pace", ["as soon as they are back", "at once"])
def test_messages_are_handled_after_redis_dropped_every_connection_three_times(
    deploy: Deploy, own_servers: Callable[..., EmbeddedServers], pace: str
) -> None:
    with deploy(redis_url=own_servers(durable=False).redis_url) as d:
        worker = d.ready_worker()
        run = d.parked("asker")
        in_flight = d.client.start("held", "go")
        d.noted("model")
        dropped = []
        for _ in range(3):
            if pace != "at once":
                wait_until(lambda: reading(d.redis) == {"brpop", "blmove"}, what="readers of both kinds of queue")
            dropped.append(drop_connections(d.redis))
        assert all(dropped) or (pace == "at once" and dropped[0])
        d.effects.release("model")

        (action,) = d.client.pending(run_id=run.id)
        receipt = d.client.publish(Answer(action_id=action.id, data=YES), LIMIT_SECONDS)
        assert receipt.status == "accepted"
        assert d.client.wait(run.id, until=("completed",), timeout=LIMIT_SECONDS).output == "done"
        assert d.client.wait(in_flight.id, until=("completed",), timeout=LIMIT_SECONDS).usage.requests == 1
        next_run = d.client.start("asker", "go")
        d.client.wait(next_run.id, until=("parked",), timeout=LIMIT_SECONDS)
        assert worker.exit_code is None


def reading(client: redis.Redis) -> set[str]:
    """With which commands somebody waits for messages."""
    return {each["cmd"] for each in client.client_list() if each["cmd"] in ("brpop", "blmove")}


def drop_connections(client: redis.Redis) -> int:
    return int(client.client_kill_filter(_type="normal", skipme=True))


# --- odd exceptions ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async", "sync with a limit"])
def test_an_odd_exception_is_a_tool_error_and_the_next_run_is_served(build: Build, kind: str) -> None:
    def raise_it(ctx: Context, name: str) -> str:
        raise ODD_ERRORS[name]()

    async def raise_it_async(ctx: Context, name: str) -> str:
        return raise_it(ctx, name)

    body = raise_it_async if kind == "async" else raise_it
    limit = timedelta(minutes=10) if kind == "sync with a limit" else None
    odd = tool(name="odd", description="Raise it.", timeout=limit)(body)
    fx = Counters()
    script = [*(call("odd", name=name) for name in ODD_ERRORS), say("done")]
    w = build(odd, model=scripted(*script, counters=fx))
    run_id = w.start()
    outcomes = [output.outcome for output in w.outputs(run_id)]
    assert outcomes == ["error"] * len(ODD_ERRORS)
    assert w.run(run_id).status == "completed"
    assert fx["model"] == len(ODD_ERRORS) + 1
    said = dict(zip(ODD_ERRORS, (output.content for output in w.outputs(run_id)), strict=True))
    assert said["two_arguments"] == "TwoArguments: 1: two"
    assert said["no_text"] == "NoText: (its message cannot be read)"
    assert said["system_exit"] == "SystemExit: 3"
    assert "the limit is 1000000 bytes" in said["very_long"]
    assert said["of_text_that_cannot_be_stored"] == "ValueError: a\ufffdb\ufffdc"


def test_odd_exceptions_beside_a_gate_leave_the_gate_open(build: Build) -> None:
    fx = Counters()

    @tool
    async def odd(ctx: Context, name: str) -> str:
        """Raise it."""
        raise ODD_ERRORS[name]()

    calls = [call("ask", x=1), *(call("odd", name=name) for name in ODD_ERRORS)]
    w = build(asking("inline", fx), odd, model=scripted(calls, say("done")))
    run_id = w.start()
    assert len(w.outputs(run_id)) == len(ODD_ERRORS)
    assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 1)


def test_an_odd_exception_of_a_model_fails_its_run_and_no_other(database_url: str, redis_url: str) -> None:
    def script(request: ModelRequest) -> str:
        (turn,) = request.conversation
        assert isinstance(turn, UserTurn)
        if turn.text not in ODD_ERRORS:
            return "done"
        raise ODD_ERRORS[turn.text]()

    with world(database_url, redis_url, model=ScriptedModel(script)) as w:
        for name in ODD_ERRORS:
            run = w.run(w.start(name))
            if name in ("cancelled", "future_cancelled"):
                # It may have been an accident of the connection: the same request is made again later.
                assert (run.status, run.deaths) == ("queued", 0), name
                continue
            assert (run.status, run.error and run.error.type) == ("failed", "ModelRequestError"), name
            assert run.error is not None
            assert len(run.error.message) < 20_000, name
        assert w.run(w.start("nothing odd")).status == "completed"


def test_a_worker_survives_every_odd_exception(deploy: Deploy) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        odd = [d.client.start("odd", f"{kind} {name}") for name in ODD_ERRORS for kind in ("odd", "odd_async")]
        for run in odd:
            ended = d.ended(run)
            assert ended.status == "completed", ended.error
        assert d.ended(d.client.start("pooled", "go")).status == "completed"
        assert worker.exit_code is None
        assert {run.deaths for run in map(d.ended, odd)} == {0}


# --- pooled connections ------------------------------------------------------------------------


def test_consecutive_async_turns_share_a_pool(deploy: Deploy) -> None:
    with deploy() as d:
        d.ready_worker()
        for number in (1, 2):
            run = d.ended(d.client.start("pooled", "go"))
            assert (run.status, run.turns) == ("completed", 3)
            assert contents_in_order(d, run.id) == [2 * number - 1, 2 * number]


def test_a_pool_lasts_across_a_wait(build: Build, redis_url: str) -> None:
    pool = redis.asyncio.from_url(redis_url, max_connections=1)

    @tool(wait_points=[q])
    async def ask_pooled(ctx: Context) -> int:
        """Use the pool before and after a wait."""
        await pool.incr("pooled")
        ctx.ask(q, Question(prompt="?"))
        return int(await pool.incr("pooled"))

    w = build(ask_pooled, model=scripted(call("ask_pooled"), call("ask_pooled"), say("done")))
    run_id = w.start()
    for _ in range(2):
        assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert [output.content for output in w.outputs(run_id)] == [3, 6]
    w.services.loop.submit(pool.aclose()).result(LIMIT_SECONDS)


def contents_in_order(d: Deployment, run_id: str) -> list[Any]:
    return [item.body.content for item in d.client.items(run_id) if isinstance(item.body, OutputItem)]


# --- locks of the dead --------------------------------------------------------------------------

HOLD = """
import signal, sys
import sqlalchemy as sa
from adjourn.store.postgres.runs import recovery as forgotten
url = sys.argv[1].replace("postgresql://", "postgresql+psycopg://")
with sa.create_engine(url).begin() as connection:
    rows = connection.execute(forgotten.ABANDONED, {"limit": 10, "suspect_deaths": 3, "wakeup_retry_seconds": 30}).all()
    print("locked", len(rows), flush=True)
    signal.pause()
"""


def test_a_sweep_goes_on_when_another_was_killed_in_the_middle_of_one(
    build: Build, database_url: str, process: ProcessFactory
) -> None:
    fx = Counters()
    w = build(asking("inline", fx), model=scripted(call("ask", x=1), say("done")))
    run_id = w.enqueue().run_id
    w.wakeups.waiting.clear()
    assert runs.claim(w.db, run_id, suspect=False, token="of-a-dead-worker") is not None
    w.advance(61)
    holder = process([sys.executable, "-c", HOLD, database_url], cwd=ROOT)
    holder.wait_for_log("locked 1")

    assert w.sweep().abandoned == 0, "two sweeps have taken one run"
    assert w.run(run_id).status == "running"
    holder.kill()
    wait_until(lambda: w.sweep().abandoned == 1, what="a sweep that finds the run again")
    assert w.answer(w.the_action(run_id), YES).status == "accepted"
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 1)


def test_answers_are_read_again_when_their_reader_was_killed_with_the_restoring_lock_in_its_hand(
    deploy: Deploy,
) -> None:
    with deploy() as d:
        worker = d.ready_worker()
        run = d.parked("asker")
        (action,) = d.client.pending(run_id=run.id)
        with locked_run(d, run.id):
            # The reader takes the answer, and waits for the row.
            send(d, Answer(action_id=action.id, data=YES))
            wait_until(lambda: waiting_for_a_row(d), what="an answer that was taken and waits for its row")
            worker.kill()
            end_statements_of_the_dead(d)
            wait_until(lambda: not waiting_for_a_row(d), what="the end of the statement of the dead")
        # Kombu's own lock, which another program may hold, or have died with. Nobody here waits for it.
        assert d.redis.lock("unacked_mutex").acquire(blocking=False)
        state = actions.get(d.db, action.id)
        assert state is not None
        assert state.action.status == "pending"
        d.worker()
        assert d.ended(run).status == "completed"
        assert d.effects.count("fx") == 1


def waiting_for_a_row(d: Deployment) -> bool:
    waiting = "select count(*) as n from pg_stat_activity where wait_event_type = 'Lock' and datname = :name"
    return bool(d.db.one(sa.text(waiting), {"name": d.database_name}).n)


def end_statements_of_the_dead(d: Deployment) -> None:
    """Postgres would carry a statement to its end for a client that it does not know to be dead."""
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and datname = :name"
    assert d.db.execute(sa.text(ended), {"name": d.database_name})


@contextmanager
def locked_run(d: Deployment, run_id: str) -> Iterator[None]:
    """Keep the row of a run locked."""
    engine = sa.create_engine(d.settings.database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text("select 1 from adjourn.runs where id = :id for update"), {"id": run_id})
        yield
    engine.dispose()


def send(d: Deployment, answer: Answer) -> None:
    """Put an answer on the resume queue and wait for nothing."""
    broker = resume_broker(d.settings)
    with broker.connection() as connection:
        connection.Producer().publish(
            answer.model_dump_json(exclude_unset=True),
            routing_key=broker.queue(RESUME_QUEUE).name,
            content_type="application/json",
            content_encoding="utf-8",
        )


# --- poison ----------------------------------------------------------------------------------


def test_a_run_that_always_kills_its_process_fails_and_the_others_are_served(deploy: Deploy) -> None:
    with deploy() as d:
        doomed = d.ready_worker()
        waiting = d.parked("asker")
        beside = [d.client.start("held", "go") for _ in range(2)]
        d.noted("model", 2)
        poison = d.client.start("killer", "go")
        assert doomed.wait() == 1, "the tool ended the process it ran in"

        survivor = d.ready_worker()
        d.effects.release("model")
        failed = d.ended(poison)
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.type == "PoisonedRunError"
        attempts = 1 + d.settings.tuning.suspect_deaths
        assert d.effects.count("die") == attempts == failed.deaths
        assert len(set(d.effects.pids("die"))) == attempts, "it was let into one process twice"
        assert survivor.pid not in d.effects.pids("die")

        (action,) = d.client.pending(run_id=waiting.id)
        assert d.client.submit(action.id, YES).status == "accepted"
        for run in (*beside, waiting, d.client.start("pooled", "go")):
            ended = d.ended(run)
            assert (ended.status, ended.deaths) == ("completed", 0)
        assert survivor.exit_code is None
        assert d.effects.count("die") == attempts, "tried again after it had failed"
