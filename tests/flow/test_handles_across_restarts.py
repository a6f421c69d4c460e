"""Agents kept as handles, across a real restart, and handles that are misused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adjourn import Client, RunHandle, ThreadHandle
from adjourn.schemas.errors import (
    AdjournError,
    AnswerRefusedError,
    IllegalIdError,
    NotFoundError,
    RunEndedError,
    ThreadBusyError,
    UnknownBlockError,
    UnusableHandleError,
    WaitTimeoutError,
)
from adjourn.schemas.records.handles import Snapshot
from adjourn.schemas.records.runs import WakeUp
from adjourn.tasks.models.scripted import USAGE
from adjourn.worker.config.settings import Settings
from tests.conftest import Deploy
from tests.flow.handles_app import PROMPT, app
from tests.waiting import LIMIT_SECONDS
from tests.world import World

ROOT = "order-17"
TOKENS = USAGE.total_tokens


class Host:
    """A root of handles whose runs continue when the test says so."""

    def __init__(self, settings: Settings, world: World, client: Client) -> None:
        self.settings = settings
        self.world = world
        self.client = client
        self.root = client.thread(ROOT)

    def work(self, run: RunHandle | str) -> None:
        """Take a run as far as it goes, as a worker would, and what waits behind it."""
        for due in ("turn", "reentry"):
            self.world.wakeups.publish(WakeUp(run_id=run if isinstance(run, str) else run.id, due=due))
        self.world.settle()

    def suspended(self, agent: str = "approver", **options: Any) -> ThreadHandle:
        handle = self.root.spawn(agent, **options)
        self.work(handle.send("do the secret thing"))
        assert handle.snapshot().state == "suspended"
        return handle

    def resume(self, *answer: Any, **fields: Any) -> None:
        receipt = self.client.resume(*answer, **fields)
        assert receipt.status == "accepted"
        self.work(receipt.run_id)

    def restart(self) -> None:
        """Everything that was held in memory is gone, in the worker and in the host."""
        self.world.deploy(app)
        self.root = self.client.thread()


@pytest.fixture
def host(database_url: str, redis_url: str) -> Iterator[Host]:
    settings = Settings(database_url=database_url, redis_url=redis_url)
    world = World(app, database_url, redis_url)
    with Client(settings) as client:
        yield Host(settings, world, client)
    world.close()


# --- the examples ----------------------------------------------------------------------------------


def test_the_smallest_useful_call(host: Host) -> None:
    handle = host.root.spawn("approver")
    host.work(handle.wake("do the secret thing"))
    result = handle.wait()
    assert (result.status, result.text, result.is_error) == ("pending", "", False)
    request = result.pending
    assert (request.id, request.kind, request.prompt) == ("req-1", "authorization", PROMPT)
    assert (request.data, request.path) == ({"amount": 7}, ("approver", "secret_action"))
    assert (request.thread_id, request.name) == (handle.thread_id, "secret_action.request")
    assert handle.snapshot().pending == request

    host.resume({"id": request.id, "ok": True})
    after = handle.snapshot()
    assert (after.state, after.last_result.text, after.requests) == ("idle", "action performed", ())
    assert handle.wait() == after.last_result
    host.root.shutdown()


# --- in the depth of a tree ------------------------------------------------------------------------


def test_an_answer_finds_the_leaf_in_a_fresh_process_and_each_parent_is_woken_by_its_child(host: Host) -> None:
    handle = host.suspended("boss")
    before = handle.snapshot()
    (request,) = before.requests
    assert request.path == ("boss", "middle", "approver", "secret_action")
    assert request.thread_id != handle.thread_id
    assert handle.wait().pending == request

    host.restart()
    host.resume(id=request.id, ok=True)
    after = handle.snapshot()
    assert (after.state, after.requests) == ("idle", ())
    assert after.last_result is not None
    assert after.last_result.text == "action performed"
    assert after.turns_total == 6 > before.turns_total
    assert after.usage_total.total_tokens == 6 * TOKENS > before.usage_total.total_tokens
    threads = host.client.threads()
    assert sorted(each.agent for each in threads) == ["approver", "boss", "middle"], "nothing was started twice"


def test_a_denial_in_the_depth_is_ordinary_text_for_each_parent(host: Host) -> None:
    handle = host.suspended("boss")
    host.resume(id="req-1", ok=False, reason="not authorized")
    snapshot = handle.snapshot()
    assert snapshot.state == "idle"
    assert snapshot.last_result is not None
    assert not snapshot.last_result.is_error
    assert snapshot.last_result.text.startswith("declined")


def test_the_realistic_case_across_a_real_restart(deploy: Deploy) -> None:
    """New worker, new client, new handle: what is kept of the first ones are two ids."""
    with deploy(app="tests.flow.handles_app:app") as deployment:
        worker = deployment.ready_worker()
        with Client(deployment.settings) as client, client.thread(ROOT) as root:
            handle = root.spawn("approver", name="release")
            handle.send("do it")
            pending = handle.wait(timeout=LIMIT_SECONDS).pending
            before = handle.snapshot()
        thread_id, request_id = handle.thread_id, pending.id
        worker.kill()
        del handle, root, client

        deployment.ready_worker()
        with Client(deployment.settings) as client:
            handle = client.thread(thread_id)
            assert handle.snapshot() == before, "parked is parked, whoever has gone meanwhile"
            assert (before.state, before.usage_total.total_tokens, before.turns_total) == ("suspended", TOKENS, 1)

            client.resume(id=request_id, ok=True)
            result = handle.wait(timeout=LIMIT_SECONDS)
            assert (result.status, result.text) == ("done", "action performed")
            after = handle.snapshot()
            assert (after.state, after.usage_total.total_tokens, after.turns_total) == ("idle", 2 * TOKENS, 2)
            assert [run.deaths for run in client.thread(thread_id).state().runs] == [0]


def test_a_denial_is_ordinary_text(host: Host) -> None:
    handle = host.suspended()
    host.resume(id=handle.wait().pending.id, ok=False, reason="not authorized")
    after = handle.snapshot()
    assert (after.state, after.last_result.status, after.last_result.is_error) == ("idle", "done", False)
    assert after.last_result.text.startswith("declined")
    assert PROMPT in after.last_result.text
    assert "not authorized" in after.last_result.text


# --- finding handles again, and waking them ----------------------------------------------------------


def test_the_same_root_and_name_are_the_same_handle(host: Host) -> None:
    first = host.suspended(name="release")
    again = host.client.thread(ROOT)
    assert again == host.root
    assert again.spawn("approver", name="release") == host.client.thread(f"{ROOT}:release") == first
    assert first.spawn("signer", name="page").thread_id == f"{ROOT}:release:page"


def test_without_a_name_every_handle_is_another(host: Host) -> None:
    threads = {host.root.spawn("approver").thread_id for _ in range(3)}
    assert len(threads) == 3
    assert all(thread.startswith(f"{ROOT}:") for thread in threads)
    assert host.client.thread() != host.client.thread()


def test_a_thread_of_ones_own_is_a_handle(host: Host) -> None:
    handle = host.suspended(thread_id="chat-9")
    assert (handle.thread_id, host.client.thread("chat-9").state().status) == ("chat-9", "parked")


def test_a_handle_is_woken_again_and_its_totals_go_on(host: Host) -> None:
    handle = host.suspended()
    host.resume(id="req-1", ok=True)
    host.restart()
    handle = host.client.thread(handle.thread_id)
    host.work(handle.send("and once more"))
    between = handle.snapshot()
    assert (between.state, between.turns_total, between.usage_total.total_tokens) == ("suspended", 3, 3 * TOKENS)
    assert between.last_result.text == "action performed"

    host.resume(id="req-1", ok=False)
    after = handle.snapshot()
    assert (after.state, after.turns_total, after.usage_total.total_tokens) == ("idle", 4, 4 * TOKENS)
    assert after.last_result.text.startswith("action performed, declined"), "it knows what was said before"


def test_a_repeated_wake_of_one_run_id_is_one_wake(host: Host) -> None:
    handle = host.root.spawn("approver")
    first = handle.send("go", run_id="run_mine")
    assert handle.send("go", run_id="run_mine") == first


def test_several_requests_of_a_turn_are_answered_one_by_one(host: Host) -> None:
    handle = host.suspended("signer")
    first, second = handle.wait().requests
    assert handle.wait().pending == first
    assert first.id == first.action_id, "its tool chose none"
    signers = {"sign 1?": "Ada", "sign 2?": "Bo"}  # tools side by side ask in whatever order
    host.resume(id=second.id, ok=True, data={"by": signers[str(second.prompt)]})
    assert handle.wait().requests == (first,)
    host.resume(id=first.id, ok=True, data={"by": signers[str(first.prompt)]})
    assert handle.wait().text == "1: Ada, 2: Bo"


# --- bad input ---------------------------------------------------------------------------------------


def test_a_busy_handle_refuses_to_be_woken(host: Host) -> None:
    handle = host.suspended()
    with pytest.raises(ThreadBusyError, match="parked"):
        handle.send("hurry")
    assert handle.snapshot().state == "suspended"


def test_a_message_behind_a_busy_handle_is_waited_for_in_its_turn(host: Host) -> None:
    handle = host.suspended()
    behind = handle.send("next", when_busy="enqueue")
    result = handle.wait()
    assert result.status == "pending"
    assert result.run_id != behind.id, "nothing comes of the second before the first is answered"
    host.resume(id="req-1", ok=True)
    result = handle.wait()
    assert (result.status, result.run_id) == ("pending", behind.id)


def test_a_message_that_supersedes_takes_the_place_of_what_was_asked(host: Host) -> None:
    handle = host.suspended()
    (old,) = handle.snapshot().requests
    host.work(handle.send("rather this", when_busy="supersede"))
    (new,) = handle.snapshot().requests
    assert new.action_id != old.action_id
    with pytest.raises(AnswerRefusedError, match="late"):
        host.client.resume(id=old.action_id, ok=True)


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_wait_may_be_in_vain(host: Host, timeout: float) -> None:
    handle = host.root.spawn("approver")
    handle.send("nobody works")
    with pytest.raises(WaitTimeoutError, match=rf"{handle.thread_id} \(now queued\) did not come within {timeout:g} s"):
        handle.wait(timeout)
    assert handle.snapshot().state == "running"


def test_an_answer_is_given_once(host: Host) -> None:
    handle = host.suspended()
    request = handle.wait().pending
    host.resume(id=request.id, ok=True)
    before = handle.snapshot()
    assert host.client.resume(id=request.id, ok=True).status == "duplicate"
    with pytest.raises(AnswerRefusedError, match="submitted") as refused:
        host.client.resume(id=request.id, ok=False)
    assert refused.value.status == "late"
    host.work(request.run_id)
    assert handle.snapshot() == before


def test_a_denial_with_an_id_of_its_own_is_not_taken_for_the_next_request(host: Host) -> None:
    handle = host.suspended()
    host.resume(id="req-1", ok=False, answer_id="mail-1")
    host.work(handle.send("again"))
    assert host.client.resume(id="req-1", ok=False, answer_id="mail-1").status == "duplicate"
    assert handle.snapshot().state == "suspended"


def test_an_answer_to_nobody_is_refused(host: Host) -> None:
    with pytest.raises(AnswerRefusedError, match="no action has this id") as refused:
        host.client.resume(id="req-404", ok=True)
    assert refused.value.status == "unknown"


def test_an_answer_that_could_be_for_two_is_refused_and_takes_the_id_of_the_action(host: Host) -> None:
    one, other = host.suspended(), host.suspended()
    with pytest.raises(AnswerRefusedError, match="ambiguous"):
        host.client.resume(id="req-1", ok=True)
    host.resume(id=one.snapshot().pending.action_id, ok=True)
    states = [each.snapshot().state for each in (one, other)]
    assert states == ["idle", "suspended"]


def test_an_answer_that_does_not_fit_leaves_the_request_open(host: Host) -> None:
    handle = host.suspended("signer")
    with pytest.raises(AnswerRefusedError) as refused:
        host.client.resume(id=handle.wait().pending.id, ok=True, data={"by": 7})
    assert (refused.value.status, [issue.path for issue in refused.value.issues]) == ("invalid", ["/by"])
    assert handle.snapshot().state == "suspended"


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({}, "/id"),
        ({"id": "req-1"}, "/ok"),
        ({"id": "req-1", "ok": "yes"}, "/ok"),
        ({"id": "req-1", "ok": True, "data": [1]}, "/data"),
        ({"id": "req-1", "ok": True, "note": "?"}, "/note"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_place(host: Host, answer: dict[str, Any], path: str) -> None:
    handle = host.suspended()
    with pytest.raises(AnswerRefusedError) as refused:
        host.client.resume(answer)
    assert (refused.value.status, path in [issue.path for issue in refused.value.issues]) == ("malformed", True)
    assert handle.snapshot().state == "suspended"


def test_a_handle_that_was_never_woken(host: Host) -> None:
    handle = host.root.spawn("approver")
    assert handle.snapshot() == Snapshot(thread_id=handle.thread_id, agent="approver", state="idle")
    with pytest.raises(UnusableHandleError, match="has no run yet"):
        handle.wait()
    with pytest.raises(NotFoundError, match=handle.thread_id):
        handle.state()
    handle.cancel()


def test_a_thread_without_a_run_has_no_agent(host: Host) -> None:
    with pytest.raises(UnusableHandleError, match=r"no agent; name one with send\(.*, or spawn an agent under it"):
        host.root.send("go")
    assert host.root.snapshot().state == "idle"


@pytest.mark.parametrize("illegal", [{"name": "a b"}, {"name": "x" * 100}, {"thread_id": ""}])
def test_a_place_that_cannot_be_a_thread_is_refused(host: Host, illegal: dict[str, str]) -> None:
    with pytest.raises(IllegalIdError):
        host.root.spawn("approver", **illegal)
    with pytest.raises(IllegalIdError):
        host.client.thread("no root")


def test_an_agent_that_is_missing_is_refused_where_the_app_is_known(host: Host) -> None:
    with Client(host.settings, app=app) as client:
        root = client.thread()
        with pytest.raises(UnknownBlockError, match="no block named 'nobody'"):
            root.spawn("nobody")
        assert root.spawn("approver").agent == "approver"


def test_an_agent_that_is_missing_in_the_worker_fails_its_handle(host: Host) -> None:
    handle = host.root.spawn("nobody")
    host.work(handle.send("go"))
    result = handle.wait()
    assert (result.status, result.is_error, result.error.type) == ("failed", True, "UnknownBlockError")
    assert "no block named 'nobody'" in result.text
    after = handle.snapshot()
    assert (after.state, after.last_result) == ("failed", result)


# --- shutting down -----------------------------------------------------------------------------------

VERBS: dict[str, Callable[[ThreadHandle], object]] = {
    "spawn": lambda handle: handle.spawn("approver"),
    "send": lambda handle: handle.send("go", when_busy="enqueue"),
    "wake": lambda handle: handle.wake("go", when_busy="enqueue"),
    "wait": lambda handle: handle.wait(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_after_a_shutdown_a_tree_takes_no_orders(host: Host, verb: str) -> None:
    handle = host.suspended()
    before = host.client.thread(handle.thread_id).state()
    host.root.shutdown()
    with pytest.raises(UnusableHandleError, match=f"shut down; continue with client\\.thread\\('{ROOT}'\\)") as error:
        VERBS[verb](handle)
    assert isinstance(error.value, AdjournError)
    assert host.client.thread(handle.thread_id).state() == before


def test_a_shutdown_leaves_what_is_parked_to_the_next_process(host: Host) -> None:
    parked, idle = host.suspended(), host.root.spawn("approver")
    with host.root:
        assert idle.snapshot().state == "idle"
    assert [each.snapshot().state for each in (parked, idle)] == ["suspended", "done"]
    host.restart()
    host.resume(id="req-1", ok=True)
    again = host.client.thread(parked.thread_id)
    assert again.wait().text == "action performed"
    assert [each.snapshot().state for each in (parked, again)] == ["done", "idle"]


def test_a_shutdown_may_cancel_what_its_handles_are_at(host: Host) -> None:
    other = host.suspended()
    host.restart()
    parked, idle = host.suspended(), host.root.spawn("approver")
    behind = parked.send("next", when_busy="enqueue")
    request = parked.wait().pending
    host.root.shutdown(cancel=True)
    host.root.shutdown(cancel=True)
    host.work(behind)
    after = parked.snapshot()
    assert (after.state, after.requests, after.last_result) == ("done", (), None)
    assert (after.turns_total, idle.snapshot().state) == (1, "done")
    assert host.client.get_run(behind.id).status == "cancelled"
    assert other.snapshot().state == "suspended", "it is of another tree"

    parked = host.client.thread(parked.thread_id)
    assert parked.snapshot().state == "done"
    with pytest.raises(AnswerRefusedError, match="late"):
        host.client.resume(id=request.action_id, ok=True)
    with pytest.raises(RunEndedError, match="cancelled"):
        parked.wait()
    host.work(parked.send("go on"))
    assert parked.snapshot().state == "suspended"


def test_a_shutdown_with_cancel_reaches_the_thread_that_it_is_called_on(host: Host) -> None:
    handle = host.client.thread("chat-9")
    host.work(handle.send("go", agent="approver"))
    handle.shutdown(cancel=True)
    assert handle.snapshot().state == "done"
    assert handle.state().runs[-1].status == "cancelled"
