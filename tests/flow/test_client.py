"""The Python client against real servers. Where no broker is in play, the test drives the runs itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adjourn import Client, Limits, RunHandle
from adjourn.schemas.errors import (
    AnswerRefusedError,
    ConfigurationError,
    IllegalIdError,
    NotFoundError,
    RunEndedError,
    ThreadBusyError,
    UnknownBlockError,
    UnusableHandleError,
    WaitTimeoutError,
)
from adjourn.schemas.records.answers import Answer
from adjourn.schemas.records.items import MessageItem
from adjourn.schemas.records.messages import ModelTurn, ResultTurn, UserTurn
from adjourn.schemas.records.runs import Run, WakeUp
from adjourn.worker.config.settings import Settings
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.flow.gate_app import AGENT, GUARDED, Approval, app
from tests.processes import ChildProcess
from tests.waiting import LIMIT_SECONDS
from tests.world import World

ROOT = Path(__file__).parents[2]
THREAD_START = "redis://127.0.0.1:1/0"


class Desk:
    """A client, and a hand that drives runs when told to."""

    def __init__(self, client: Client, world: World) -> None:
        self.client = client
        self._world = world

    def drive(self, run: Run | RunHandle) -> Run:
        """Take a run as far as it goes, as a worker would."""
        for due in ("turn", "reentry"):
            self._world.wakeups.publish(WakeUp(run_id=run.id, due=due))
        self._world.settle()
        return self.client.get_run(run.id)

    def parked(self, agent: str = AGENT, **options: str) -> Run:
        run = self.drive(self.client.start(agent, "go", **options))
        assert run.status == "parked"
        return run


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url)


@pytest.fixture
def world(database_url: str, redis_url: str) -> Iterator[World]:
    made = World(app, database_url, redis_url)
    yield made
    made.close()


@pytest.fixture
def desk(settings: Settings, world: World) -> Iterator[Desk]:
    with Client(settings) as client:
        yield Desk(client, world)


# --- starting ---------------------------------------------------------------------------------


def test_a_start_with_a_run_id_of_ones_own_happens_once(desk: Desk) -> None:
    first = desk.client.start(AGENT, "go", run_id="run_mine")
    again = desk.client.start(AGENT, "go", run_id="run_mine")
    assert again == first
    assert len(desk.client.items("run_mine")) == 1


def test_what_a_user_says_is_cleaned_of_what_cannot_be_stored(desk: Desk) -> None:
    run = desk.client.start(AGENT, "a\x00b\ud800c")
    (item,) = desk.client.items(run.id)
    assert item.body == MessageItem(text="a�b�c")


@pytest.mark.parametrize("said", [None, "null", "", 0, False, [], {}])
def test_an_input_is_handed_on_as_it_is(desk: Desk, said: object) -> None:
    run = desk.client.start(AGENT, said)
    (item,) = desk.client.items(run.id)
    assert isinstance(item.body, MessageItem)
    assert (type(item.body.input), item.body.input) == (type(said), said)


def test_a_client_with_an_app_knows_the_agents(settings: Settings) -> None:
    with Client(settings, app=app) as client:
        assert client.start(AGENT, "go").state().limits is None
        assert client.start(AGENT, "go", limits=Limits(turns=2)).state().limits == Limits(turns=2)
        with pytest.raises(UnknownBlockError, match="no block named 'nobody'"):
            client.start("nobody", "go")


def test_a_busy_thread_refuses_and_says_by_what(desk: Desk) -> None:
    busy = desk.parked()
    with pytest.raises(ThreadBusyError) as refused:
        desk.client.thread(busy.thread_id).send("and?")
    assert (refused.value.run_id, refused.value.status) == (busy.id, "parked")


def test_an_enqueued_run_starts_when_the_one_before_it_ends(desk: Desk) -> None:
    first = desk.parked()
    second = desk.client.thread(first.thread_id).send("and?", when_busy="enqueue")
    assert desk.drive(second).status == "queued"
    desk.client.cancel_run(first.id)
    assert desk.drive(second).status == "parked"


def test_supersede_cancels_the_busy_run_and_those_behind_it(desk: Desk) -> None:
    busy = desk.parked()
    behind = [desk.client.thread(busy.thread_id).send("wait", when_busy="enqueue") for _ in range(2)]
    (action,) = desk.client.pending(run_id=busy.id)
    run = desk.client.thread(busy.thread_id).send("instead", when_busy="supersede")
    assert [desk.client.get_run(each.id).status for each in (busy, *behind)] == ["cancelled"] * 3
    assert desk.client.submit(action.id, {"approved": True}, raise_on_refusal=False).status == "late"
    assert desk.drive(run).status == "parked"


def test_send_goes_to_the_agent_of_the_last_run(desk: Desk) -> None:
    first = desk.client.start(GUARDED, "go")
    desk.client.cancel_run(first.id)
    assert desk.client.thread(first.thread_id).send("again").agent == GUARDED
    with pytest.raises(UnusableHandleError, match="thr_none: has no run yet, and so no agent"):
        desk.client.thread("thr_none").send("hello?")


@pytest.mark.parametrize("look", [Client.get_run, Client.items, Client.cancel_run, Client.wait])
def test_an_unknown_run_is_said_to_be_unknown(desk: Desk, look: Callable[[Client, str], object]) -> None:
    with pytest.raises(NotFoundError, match="no run run_none"):
        look(desk.client, "run_none")


@pytest.mark.parametrize("no_id", ["a\x00", "\udcff", ""])
def test_what_can_be_no_id_is_of_nothing(desk: Desk, no_id: str) -> None:
    client = Client(desk.client.settings, app=app)
    for look in (client.get_run, client.items, client.cancel_run, client.retry, client.check, client.follow):
        with pytest.raises(NotFoundError, match="no run "):
            look(no_id)
    with pytest.raises(IllegalIdError, match="thread id"):
        client.thread(no_id)


# --- answering --------------------------------------------------------------------------------


def test_an_action_is_submitted_with_a_model(desk: Desk) -> None:
    run = desk.parked()
    (action,) = desk.client.pending(run_id=run.id)
    assert (action.name, action.prompt, action.origin.run_id) == ("ask.gate", "Go on with 1?", run.id)
    assert action.submit(Approval(approved=False, note="no")).status == "accepted"
    assert desk.drive(run).status == "completed"
    results = [turn for turn in desk.client.thread(run.thread_id).state().messages if isinstance(turn, ResultTurn)]
    assert [turn.content for turn in results] == ["approved: False"]


def test_a_refused_answer_raises_and_says_where(desk: Desk) -> None:
    (action,) = desk.client.pending(run_id=desk.parked().id)
    with pytest.raises(AnswerRefusedError) as refused:
        action.submit({"approved": "yes"})
    assert refused.value.status == "invalid"
    assert [issue.path for issue in refused.value.issues] == ["/approved"]
    assert [each.id for each in desk.client.pending()] == [action.id]
    assert desk.client.submit(action.id, {"approved": 1}, raise_on_refusal=False).status == "invalid"


def test_an_answer_that_is_none_is_refused_like_any_other(desk: Desk) -> None:
    assert desk.client.submit("", {}, raise_on_refusal=False).status == "malformed"
    with pytest.raises(AnswerRefusedError, match="unknown"):
        desk.client.submit("act_forged", {})


def test_an_answer_id_is_taken_once(desk: Desk) -> None:
    (action,) = desk.client.pending(run_id=desk.parked().id)
    statuses = [
        desk.client.submit(action.id, {"approved": approved}, answer_id="mine", raise_on_refusal=False).status
        for approved in (True, True, False)
    ]
    assert statuses == ["accepted", "duplicate", "late"]


def test_an_action_is_cancelled_and_failed(desk: Desk) -> None:
    outcomes = []
    for end in ("cancel", "fail"):
        run = desk.parked()
        (action,) = desk.client.pending(run_id=run.id)
        (action.cancel if end == "cancel" else action.fail)("not now")
        assert desk.drive(run).status == "completed"
        messages = desk.client.thread(run.thread_id).state().messages
        outcomes += [turn.outcome for turn in messages if isinstance(turn, ResultTurn)]
    assert outcomes == ["declined", "failed"]


def test_a_name_has_to_be_the_actions(desk: Desk) -> None:
    (action,) = desk.client.pending(run_id=desk.parked().id)
    assert (
        desk.client.submit(action.id, {"approved": True}, name="ask.other", raise_on_refusal=False).status == "invalid"
    )
    assert desk.client.submit(action.id, {"approved": True}, name="ask.gate").status == "accepted"


def test_only_who_may_answer_does(desk: Desk, settings: Settings) -> None:
    run = desk.parked(GUARDED)
    (action,) = desk.client.pending(run_id=run.id)
    assert desk.client.submit(action.id, {"approved": True}, raise_on_refusal=False).status == "forbidden"
    with Client(settings, identity="alice") as alice:
        assert alice.submit(action.id, {"approved": True}).status == "accepted"


def test_a_cancelled_run_takes_its_actions_with_it(desk: Desk) -> None:
    run = desk.parked()
    (action,) = desk.client.pending(run_id=run.id)
    assert desk.client.cancel_run(run.id, "changed my mind").status == "cancelled"
    assert desk.client.pending() == []
    receipt = action._client.submit(action.id, {"approved": True}, raise_on_refusal=False)
    assert (receipt.status, receipt.action_status) == ("late", "cancelled")
    assert desk.client.cancel_run(run.id).status == "cancelled"


# --- looking ----------------------------------------------------------------------------------


def test_a_snapshot_leaves_an_open_turn_out_until_it_has_closed(desk: Desk) -> None:
    run = desk.parked()
    open_state = desk.client.thread(run.thread_id).state()
    assert (open_state.status, [each.name for each in open_state.pending]) == ("parked", ["ask.gate"])
    assert [type(turn) for turn in open_state.messages] == [UserTurn]
    desk.client.submit(open_state.pending[0].id, {"approved": True})
    desk.drive(run)
    closed = desk.client.thread(run.thread_id).state()
    assert (closed.status, closed.pending, closed.turns_total) == ("idle", (), 2)
    assert [type(turn) for turn in closed.messages] == [UserTurn, ModelTurn, ResultTurn, ModelTurn]
    assert closed.usage_total == closed.runs[0].usage
    with pytest.raises(NotFoundError, match="no thread thr_none"):
        desk.client.thread("thr_none").state()


def test_pending_is_by_run_by_thread_or_all(desk: Desk, world: World) -> None:
    before = world.db.clock()
    one, two = desk.parked(), desk.parked()
    after = world.db.clock()
    assert len(desk.client.pending()) == 2
    assert [each.origin.run_id for each in desk.client.pending(one.thread_id)] == [one.id]
    assert [each.origin.run_id for each in desk.client.pending(run_id=two.id)] == [two.id]
    first, second = [each.opened_at for each in desk.client.pending()]
    assert before <= first <= second <= after


def test_threads_lists_each_with_its_last_run(desk: Desk) -> None:
    run = desk.parked()
    (listed,) = desk.client.threads()
    assert (listed.thread_id, listed.run_id, listed.status, listed.agent) == (run.thread_id, run.id, "parked", AGENT)


# --- waiting ----------------------------------------------------------------------------------


def test_waiting_ends_in_time_and_changes_nothing(desk: Desk) -> None:
    run = desk.client.start(AGENT, "go").state()
    with pytest.raises(WaitTimeoutError, match=r"something to answer, of run .* \(now queued\)"):
        desk.client.wait(run.id, timeout=0.01)
    assert desk.client.get_run(run.id) == run


def test_waiting_for_what_cannot_come_ends_at_once(desk: Desk) -> None:
    run = desk.client.start(AGENT, "go")
    desk.client.cancel_run(run.id, "because")
    with pytest.raises(RunEndedError, match="is cancelled: because"):
        desk.client.wait(run.id, until=("completed",))


def test_waiting_works_without_redis(desk: Desk, database_url: str) -> None:
    run = desk.client.start(AGENT, "go")
    seen: list[str] = []

    def drive_once_seen(now: Run) -> None:
        seen.append(now.status)
        if now.status == "queued":
            desk.drive(now)

    with Client(Settings(database_url=database_url, redis_url=THREAD_START)) as client:
        assert client.wait(run.id, timeout=LIMIT_SECONDS, on_change=drive_once_seen).status == "parked"
    assert seen == ["queued", "parked"]


# --- which deployment -------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any setting of ours."""
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "APP", "DATA_DIR"):
        monkeypatch.delenv(f"ADJOURN_{name}", raising=False)
    return monkeypatch


def test_without_a_deployment_there_is_no_client(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("ADJOURN_DATA_DIR", str(tmp_path / "nothing-here"))
    with pytest.raises(ConfigurationError, match="ADJOURN_DATABASE_URL: is not set, and no embedded servers"):
        Client()


def test_a_client_finds_embedded_servers_that_run(bare: pytest.MonkeyPatch, servers: EmbeddedServers) -> None:
    bare.setenv("ADJOURN_DATA_DIR", str(servers.data_dir))
    bare.setenv("ADJOURN_BROKER_URL", "amqp://elsewhere//")
    with Client() as client:
        assert client.settings.database == servers.database_url
        assert client.settings.broker == servers.redis_url


def test_the_environment_comes_before_embedded_servers(
    bare: pytest.MonkeyPatch, servers: EmbeddedServers, database_url: str, redis_url: str
) -> None:
    bare.setenv("ADJOURN_DATA_DIR", str(servers.data_dir))
    bare.setenv("ADJOURN_DATABASE_URL", database_url)
    bare.setenv("ADJOURN_REDIS_URL", redis_url)
    with Client() as client:
        assert client.settings.database == database_url


# --- with a worker ----------------------------------------------------------------------------


@pytest.fixture
def through(database_url: str, redis_url: str, broker_url: str) -> Settings:
    """A deployment with each kind of broker."""
    return Settings(database_url=database_url, redis_url=redis_url, broker_url=broker_url)


@pytest.fixture
def start_worker(process: Callable[..., ChildProcess], through: Settings) -> Callable[[], ChildProcess]:
    env = {
        "ADJOURN_DATABASE_URL": through.database,
        "ADJOURN_REDIS_URL": through.redis,
        "ADJOURN_BROKER_URL": through.broker,
        "ADJOURN_APP": "tests.flow.gate_app:app",
    }
    return lambda: process([sys.executable, "-m", "adjourn", "worker", "--concurrency", "4"], env=env, cwd=ROOT)


def test_a_run_is_started_answered_through_the_queue_and_ended(
    through: Settings, start_worker: Callable[[], ChildProcess]
) -> None:
    start_worker()
    with Client(through) as client:
        run = client.start(AGENT, "go")
        assert client.wait(run.id, timeout=LIMIT_SECONDS).status == "parked"
        (action,) = client.pending(run_id=run.id)
        wrong = client.publish(Answer(action_id=action.id, data={"approved": "yes"}), 60)
        assert (wrong.status, wrong.issues[0].path) == ("invalid", "/approved")
        right = client.publish(Answer(action_id=action.id, data={"approved": True}), 60)
        assert (right.status, right.action_id, right.run_id) == ("accepted", action.id, run.id)
        ended = client.wait(run.id, until=("completed",), timeout=LIMIT_SECONDS)
        assert ended.output == "done"


def test_an_answer_published_before_any_worker_runs_is_kept_by_the_queue(
    through: Settings, start_worker: Callable[[], ChildProcess], database_url: str, redis_url: str
) -> None:
    world = World(app, database_url, redis_url)
    with Client(through) as client:
        run = Desk(client, world).parked()
        world.close()
        (action,) = client.pending(run_id=run.id)
        with pytest.raises(WaitTimeoutError, match="a receipt"):
            client.publish(Answer(action_id=action.id, data={"approved": True}), 0.2)
        start_worker()
        assert client.wait(run.id, until=("completed",), timeout=LIMIT_SECONDS).status == "completed"
