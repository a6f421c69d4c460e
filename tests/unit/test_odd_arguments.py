"""What a client and its handles are given that they cannot take: said at the call, and nothing is asked of a server.

None is there: what is not refused at the call is a `StoreUnavailableError` here, or never comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from adjourn import Answer, Client, Limits, RunHandle, ThreadHandle
from adjourn.schemas.errors import (
    AdjournError,
    AnswerRefusedError,
    ConfigurationError,
    IllegalArgumentError,
    IllegalIdError,
    NotFoundError,
)
from adjourn.worker.config.settings import Settings

THREAD_START = Settings(database_url="postgresql://nobody@127.0.0.1:1/none", redis_url="redis://127.0.0.1:1/0")


class Unsayable(BaseModel):
    """Has a form in Python only."""

    @model_serializer
    def refuse(self) -> str:
        raise KeyError("no form")


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no words")


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NO_TIMES = [math.nan, math.inf, -1, -0.5, 10**400, "1", b"1", True, object(), []]
NO_IDS = ["", "a\x00", "\ud800", "x" * 101, "ä", b"run", 7, math.nan, object(), Unshowable(), ENDLESS, ["run"]]
NO_NAMES = [None, *NO_IDS]
NO_LIMITS = [{}, {"turns": 1}, 5, Limits().model_copy(update={"cost": math.nan}), Limits.model_construct(turns=-1)]
NO_COUNTS = [0, -1, 2**70, 1.0, math.nan, "1", None, True, object()]
NO_TEXTS = [b"why", 7, object(), ["why"]]
NO_MESSAGES = [object(), Unshowable(), b"\xff", ENDLESS, Unsayable(), len, THREAD_START.__class__]
NO_WHEN_BUSY = ["", "wait", "REFUSE", None, 7, ["refuse"], object()]
NO_STATUSES = ["parked", "", b"parked", [], (), ["done"], [["parked"]], {object()}, 7]
NO_ANSWERS = [None, b"{}", "{}", {"id": "x", "ok": True}, object()]
NO_HANDLES = [None, "thr_1", b"thr_1", object(), {"thread_id": "thr_1"}, "{}"]
NO_EVENT_IDS = ["", "1", "1-1-", b"1-1", 7, math.nan, object()]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(THREAD_START) as made:
        yield made


def a_run(client: Client) -> RunHandle:
    return client.handle(RunHandle(id="run_1", thread_id="thr_1", agent="agent"))


Method = Callable[[Client, Any], Any]
ARGUMENTS: list[tuple[str, type[AdjournError], list[Any], Method]] = [
    ("agent", IllegalArgumentError, NO_NAMES, lambda c, x: c.start(x, "go")),
    ("message", IllegalArgumentError, NO_MESSAGES, lambda c, x: c.start("agent", x)),
    ("thread id", IllegalIdError, NO_IDS, lambda c, x: c.start("agent", "go", thread_id=x)),
    ("run id", IllegalIdError, NO_IDS, lambda c, x: c.start("agent", "go", run_id=x)),
    ("limits", IllegalArgumentError, NO_LIMITS, lambda c, x: c.start("agent", "go", limits=x)),
    ("when_busy", IllegalArgumentError, NO_WHEN_BUSY, lambda c, x: c.start("agent", "go", when_busy=x)),
    ("thread id", IllegalIdError, NO_IDS, lambda c, x: c.thread(x)),
    ("message", IllegalArgumentError, NO_MESSAGES, lambda c, x: c.thread("thr_1").send(x, agent="agent")),
    ("agent", IllegalArgumentError, NO_IDS, lambda c, x: c.thread("thr_1").send("go", agent=x)),
    ("run id", IllegalIdError, NO_IDS, lambda c, x: c.thread("thr_1").send("go", agent="agent", run_id=x)),
    ("limits", IllegalArgumentError, NO_LIMITS, lambda c, x: c.thread("t").send("go", agent="agent", limits=x)),
    ("when_busy", IllegalArgumentError, NO_WHEN_BUSY, lambda c, x: c.thread().send("go", agent="agent", when_busy=x)),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.get_run(x)),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.items(x)),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.wait(x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: c.wait("run_1", timeout=x)),
    ("until", IllegalArgumentError, NO_STATUSES, lambda c, x: c.wait("run_1", until=x)),
    ("on_change", IllegalArgumentError, ["", 7, object()], lambda c, x: c.wait("run_1", on_change=x)),
    ("event id", IllegalIdError, NO_EVENT_IDS, lambda c, x: c.thread("thr_1").events(x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: c.thread("thr_1").events(timeout=x)),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.follow(x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: c.follow("run_1", timeout=x)),
    ("event id", IllegalIdError, NO_EVENT_IDS, lambda c, x: c.follow("run_1", x)),
    ("event id", IllegalIdError, NO_EVENT_IDS, lambda c, x: a_run(c).events(x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: a_run(c).events(timeout=x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: a_run(c).wait(x)),
    ("reason", IllegalArgumentError, NO_TEXTS, lambda c, x: a_run(c).cancel(x)),
    ("reason", IllegalArgumentError, NO_TEXTS, lambda c, x: c.thread("thr_1").cancel(x)),
    ("identity", IllegalArgumentError, ["", "a\0", 7], lambda c, x: a_run(c).cancel(identity=x)),
    ("identity", IllegalArgumentError, ["", "a\0", 7], lambda c, x: c.thread("thr_1").cancel(identity=x)),
    ("handle", IllegalArgumentError, NO_HANDLES, lambda c, x: c.handle(x)),
    ("thread id", IllegalIdError, ["", "a b"], lambda c, x: c.handle(ThreadHandle(thread_id=x))),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.cancel_run(x)),
    ("reason", IllegalArgumentError, NO_TEXTS, lambda c, x: c.cancel_run("run_1", x)),
    ("run", NotFoundError, NO_NAMES, lambda c, x: c.retry(x)),
    ("limits", IllegalArgumentError, NO_LIMITS, lambda c, x: c.retry("run_1", limits=x)),
    ("limit", IllegalArgumentError, NO_COUNTS, lambda c, x: c.threads(x)),
    ("thread", NotFoundError, NO_NAMES, lambda c, x: c.fork(x)),
    ("run", NotFoundError, NO_IDS, lambda c, x: c.fork("thr_1", x)),
    ("seq", IllegalArgumentError, [1.0, math.nan, "1", True, object()], lambda c, x: c.fork("thr_1", "run_1", x)),
    ("thread id", IllegalIdError, NO_IDS, lambda c, x: c.fork("thr_1", new_thread_id=x)),
    ("thread", NotFoundError, NO_IDS, lambda c, x: c.pending(x)),
    ("run", NotFoundError, NO_IDS, lambda c, x: c.pending(run_id=x)),
    ("limit", IllegalArgumentError, NO_COUNTS, lambda c, x: c.pending(limit=x)),
    ("answer", AnswerRefusedError, [None, "", b"x", 7, Unshowable(), ENDLESS], lambda c, x: c.submit(x, {})),
    ("answer", AnswerRefusedError, [*NO_TEXTS, "", "x" * 201], lambda c, x: c.submit("act_1", {}, answer_id=x)),
    ("answer", AnswerRefusedError, NO_TEXTS, lambda c, x: c.cancel("act_1", reason=x)),
    ("answer", AnswerRefusedError, NO_TEXTS, lambda c, x: c.fail("act_1", message=x)),
    ("answer", IllegalArgumentError, NO_ANSWERS, lambda c, x: c.publish(x)),
    (
        "answer",
        IllegalArgumentError,
        [*NO_MESSAGES, math.nan, {"a": math.inf}, "\ud800"],
        lambda c, x: c.publish(Answer(action_id="act_1", data=x)),
    ),
    (
        "timeout",
        IllegalArgumentError,
        [*NO_TIMES, None],
        lambda c, x: c.publish(Answer(action_id="act_1", data={}), x),
    ),
    ("agent", IllegalArgumentError, NO_NAMES, lambda c, x: c.thread().spawn(x)),
    ("name", IllegalIdError, NO_IDS, lambda c, x: c.thread().spawn("agent", name=x)),
    ("thread id", IllegalIdError, NO_IDS, lambda c, x: c.thread().spawn("agent", thread_id=x)),
    ("timeout", IllegalArgumentError, NO_TIMES, lambda c, x: c.thread().wait(x)),
    ("answer", IllegalArgumentError, ["act_1", b"{}", 7, [("id", "x")], object()], lambda c, x: c.resume(x)),
    ("answer", AnswerRefusedError, NO_NAMES[:2], lambda c, x: c.resume(id=x, ok=True)),
    ("answer", AnswerRefusedError, [None, 1, "yes", object()], lambda c, x: c.resume(id="act_1", ok=x)),
]


@pytest.mark.parametrize(
    ("what", "error", "given", "method"), ARGUMENTS, ids=[f"{n}-{each[0]}" for n, each in enumerate(ARGUMENTS)]
)
def test_what_a_method_cannot_take_is_refused_in_words_at_the_call(
    client: Client, what: str, error: type[AdjournError], given: list[Any], method: Method
) -> None:
    for each in given:
        with pytest.raises(error) as raised:
            method(client, each)
        assert what in str(raised.value)
        assert len(str(raised.value)) < 500


@pytest.mark.parametrize("given", [object(), "postgresql://localhost/db", {}, b"", 7])
def test_a_client_is_of_settings_and_an_app(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="settings: are a"):
        Client(given)
    with pytest.raises(ConfigurationError, match="app: is a"):
        Client(THREAD_START, app=given)
    with pytest.raises(IllegalArgumentError, match="identity"):
        Client(THREAD_START, identity=given if not isinstance(given, str) else Decimal(0))  # type: ignore[arg-type]


def test_an_error_says_what_may_be_given_instead(client: Client) -> None:
    with pytest.raises(IllegalArgumentError, match="timeout cannot be nan; give seconds, from 0 on, or None to wait"):
        client.thread("thr_1").events(timeout=math.nan)
    with pytest.raises(
        IllegalArgumentError, match="when_busy cannot be 'wait'; say one of: refuse, enqueue, supersede"
    ):
        client.start("agent", "go", when_busy="wait")  # type: ignore[arg-type]
