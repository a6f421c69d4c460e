"""What a viewer of a thread sees: everything in order, nothing twice, whatever Redis does and whenever it joins."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from adjourn import Context, WaitPoint, tool
from adjourn.schemas.errors import IllegalIdError, ModelRequestError, NotFoundError
from adjourn.schemas.events import (
    Cursor,
    DeltaEvent,
    EndEvent,
    Event,
    ItemEvent,
    SuspensionEvent,
    VoidEvent,
)
from adjourn.schemas.items import FaultItem, ResponseItem
from adjourn.schemas.messages import ModelRequest, ModelResponse, Usage, UserTurn
from adjourn.schemas.runs import Run
from adjourn.store import runs, streams
from adjourn.store.events import MAX_EVENT_BYTES, STREAM, Events
from adjourn.store.redis import connect
from adjourn.tasks.deltas import FULL_CHARACTERS
from adjourn.tasks.drive import drive
from adjourn.tasks.models.protocol import Deltas
from adjourn.tasks.models.retry import RetryingModel
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from adjourn.tasks.retry import retry
from adjourn.tasks.stream import Viewer
from adjourn.worker.client import Client
from adjourn.worker.settings import load_settings
from tests.waiting import wait_until
from tests.world import Counters, World, world

NOBODY_LISTENS = "redis://127.0.0.1:1/0"
LOOK = 0.2
"""Seconds after which a viewer in a thread asks whether it is to leave."""
YES = {"approved": True}


BROKEN = ModelRequestError("dictated", "the connection broke", retryable=True)


class Ask(BaseModel):
    prompt: str


class Approval(BaseModel):
    approved: bool


approval = WaitPoint("approval", suspend=Ask, resume=Approval)


@tool(wait_points=[approval])
def ask_twice(ctx: Context) -> str:
    """Ask two times."""
    for question in ("Sure?", "Really?"):
        ctx.ask(approval, Ask(prompt=question))
    return "asked"


@pytest.fixture
def w(database_url: str, redis_url: str) -> Iterator[World]:
    """An agent that asks twice and then is done."""
    with world(database_url, redis_url, ask_twice, model=script(call("ask_twice"), "All done.")) as made:
        yield made


def script(*steps: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(list(steps), **options)


def seen(w: World, thread_id: str, after: str | None = None, events: Events | None = None) -> list[Event]:
    """What is recorded after an event, as a viewer gets it that does not wait."""
    cursor = Cursor() if after is None else Cursor.parse(after)
    return list(Viewer(w.db, events or w.services.events, thread_id, cursor).read(0))


class Watching:
    """A viewer in a thread, while it is entered."""

    def __init__(self, w: World, thread_id: str, after: str | None = None, events: Events | None = None) -> None:
        self.seen: list[Event] = []
        self._leave = threading.Event()
        cursor = Cursor() if after is None else Cursor.parse(after)
        self._viewer = Viewer(w.db, events or w.services.events, thread_id, cursor)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._leave.is_set():
            self.seen.extend(self._viewer.read(LOOK))

    def until(self, holds: Callable[[list[Event]], object]) -> list[Event]:
        """Wait until what was seen is what is wanted, and return it."""
        wait_until(lambda: holds(list(self.seen)), what="the events")
        return list(self.seen)

    def until_end(self, reason: str, count: int = 1) -> list[Event]:
        return self.until(lambda events: shapes(events).count(reason) >= count)


def client_of(w: World) -> Client:
    return Client(load_settings(database_url=w.database_url, redis_url=w.redis_url))


def thread_of(w: World, run_id: str) -> str:
    return w.run(run_id).thread_id


def played(w: World) -> tuple[str, list[Event]]:
    """A run from its start over two parks to its end, as a viewer saw it that was there all the time."""
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        watching.until(bool)
        w.settle()
        for parks in (1, 2):
            watching.until_end("parked", parks)
            w.answer(w.the_action(run_id), YES)
        return run_id, watching.until_end("completed")


def without_parks(events: list[Event]) -> list[Event]:
    """What is recorded: that a run parked is a state, and over when it goes on."""
    return [event for event in events if getattr(event, "reason", None) != "parked"]


def shapes(events: list[Event]) -> list[str]:
    names: list[str] = []
    for event in events:
        match event:
            case ItemEvent():
                names.append(event.item.kind)
            case EndEvent():
                names.append(event.reason)
            case _:
                names.append(event.kind)
    return names


# --- one order, with ids to go on from ---------------------------------------------------------------


def test_a_viewer_who_was_there_sees_what_is_recorded_and_each_park(w: World) -> None:
    run_id, live = played(w)
    assert shapes(live) == [
        "message", "response", "suspension", "parked", "resolution", "suspension", "parked", "resolution",
        "output", "response", "completed",
    ]  # fmt: skip
    assert seen(w, thread_of(w, run_id)) == without_parks(live), "Redis and Postgres tell the same"
    assert [event.id for event in without_parks(live)] == [f"1-{item.seq}" for item in w.items(run_id)]
    assert len({event.id for event in live}) == len(live)
    cursors = [Cursor.parse(event.id)[:2] for event in live]
    assert all(one < next for one, next in pairwise(cursors))


@pytest.mark.parametrize("lost", ["nothing", "all", "the first half"])
def test_who_joins_again_after_any_event_gets_the_rest_exactly(w: World, lost: str) -> None:
    run_id, live = played(w)
    thread_id = thread_of(w, run_id)
    if lost == "all":
        w.redis.flushall()
    elif lost == "the first half":
        w.redis.xtrim(STREAM + thread_id, maxlen=int(w.redis.xlen(STREAM + thread_id)) // 2, approximate=False)
    for place, event in enumerate(live):
        rest = without_parks(live[place + 1 :])
        assert seen(w, thread_id, event.id) == rest
        if rest:
            with Watching(w, thread_id, event.id) as watching:
                assert watching.until_end("completed") == rest


def test_a_park_that_lasts_is_told_once_to_each(w: World) -> None:
    run_id = w.start()
    thread_id = thread_of(w, run_id)
    everything = seen(w, thread_id)
    suspension, end = everything[-2:]
    assert isinstance(suspension, SuspensionEvent)
    assert isinstance(end, EndEvent)
    assert end.reason == "parked"
    assert seen(w, thread_id, suspension.id) == [end], "who was not told is told"
    assert seen(w, thread_id, end.id) == [], "who was told is not"


def test_two_runs_of_a_thread_are_told_one_after_the_other(w: World) -> None:
    run_id = w.start()
    thread_id = thread_of(w, run_id)
    second = w.enqueue(thread_id=thread_id, enqueue=True).run_id
    with Watching(w, thread_id) as watching:
        before = watching.until_end("parked")
        assert {event.run_id for event in before} == {run_id}, "the second has a message, and its turn is not yet"
        w.answer(w.the_action(run_id), YES)
        watching.until_end("parked", 2)
        w.answer(w.the_action(run_id), YES)
        live = watching.until_end("parked", 3)
    assert [event.run_id for event in live] == [run_id] * 11 + [second] * 4
    assert shapes(live[11:]) == ["message", "response", "suspension", "parked"]
    assert seen(w, thread_id) == without_parks(live[:11]) + live[11:]


MORE_ITEMS = sa.text("""
with run as (update adjourn.runs set seq = seq + 1 where id = :run_id returning id, seq)
insert into adjourn.items (run_id, seq, at, kind, body)
select id, seq, adjourn.adjourn_now(), 'start', '{"kind": "start", "call_id": "root"}' from run returning seq
""")


def test_a_thread_longer_than_a_page_is_read_to_its_end(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(database_url, redis_url, model=script("hello")) as w:
        run_id = w.start()
        thread_id = thread_of(w, run_id)
        for _ in range(streams.RUNS + 2):
            w.start(thread_id=thread_id)
        for _ in range(streams.ITEMS + 5):
            w.db.execute(MORE_ITEMS, {"run_id": run_id})
        told = seen(w, thread_id)
    assert len(told) == 3 * (streams.RUNS + 3) + streams.ITEMS + 5
    assert [event.id for event in told] == sorted((e.id for e in told), key=lambda id: Cursor.parse(id).place)


def test_who_asks_for_what_is_not_there_is_told(w: World) -> None:
    with pytest.raises(NotFoundError):
        seen(w, "thr_nobody_has")
    for id in ("", "1", "x-1", "1-1-", "1-1:2", "1-9999999999", "-1-1"):
        with pytest.raises(IllegalIdError):
            Cursor.parse(id)


def test_a_client_watches_threads_and_runs(w: World) -> None:
    run_id, live = played(w)
    thread_id = thread_of(w, run_id)
    second = w.start(thread_id=thread_id)
    with client_of(w) as client:
        recorded = without_parks(live)
        told = list(client.stream(thread_id, timeout=0))
        assert told[: len(recorded)] == recorded
        assert shapes(told[len(recorded) :]) == ["message", "response", "suspension", "parked"]
        assert list(client.stream(thread_id, after=recorded[-1].id, timeout=0)) == told[len(recorded) :]
        assert list(client.follow(run_id)) == recorded
        assert list(client.follow(second, timeout=0)) == told[len(recorded) :]
        with pytest.raises(IllegalIdError):
            client.stream(thread_id, after="7")
        with pytest.raises(NotFoundError):
            client.follow("run_nobody_has")


def test_who_waits_for_a_run_is_not_woken_by_deltas(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = w.enqueue().run_id
    piece = DeltaEvent(id="1-1", run_id=run_id, call_id="root", attempt="a", part=0, offset=0, text="x")
    looks = Counters()
    with client_of(w) as client:
        look = client.run

        def counted(id: str) -> Run:
            looks.bump("look")
            for _ in range(200):
                w.services.events.publish(thread_of(w, run_id), [piece])
            if looks["look"] == 2:
                w.settle()
            return look(id)

        monkeypatch.setattr(client, "run", counted)
        assert client.wait(run_id, timeout=30).status == "parked"
    assert looks["look"] == 2, "once at first, and once after a second of nothing but deltas"


# --- the pause (N3), and what it costs (N2) ----------------------------------------------------------


def test_n3_who_has_nothing_but_the_stream_can_answer_and_knows_that_the_run_is_parked(w: World) -> None:
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        *_, asked, end = watching.until_end("parked")
        assert isinstance(asked, SuspensionEvent)
        assert isinstance(end, EndEvent)
        assert (end.reason, end.error, end.run_id) == ("parked", None, run_id)
        assert asked.action == w.the_action(run_id)
        assert (asked.action.name, asked.action.prompt) == ("ask_twice.approval", "Sure?")
        assert asked.action.resume_schema["properties"]["approved"] == {"title": "Approved", "type": "boolean"}
        w.answer(asked.action.id, YES)
        *_, again, _ = watching.until_end("parked", 2)
        assert isinstance(again, SuspensionEvent)
        w.answer(again.action.id, YES)
        *_, last = watching.until_end("completed")
        assert isinstance(last, EndEvent)
        assert last.output == "All done."


def test_n2_the_usage_of_the_responses_is_the_usage_of_the_run_over_two_parks(w: World) -> None:
    run_id, live = played(w)
    responses = [event.item for event in live if isinstance(event, ItemEvent) and isinstance(event.item, ResponseItem)]
    told = sum((response.usage for response in responses), Usage())
    assert told == w.run(run_id).usage
    assert told.requests == w.run(run_id).turns == 2
    without = [event.model_dump_json() for event in live if shapes([event]) != ["response"]]
    assert "usage" not in "".join(without), "nothing else says what was used"


def test_the_providers_own_message_is_not_told(database_url: str, redis_url: str) -> None:
    answer = ModelResponse(text="hello", raw='{"thinking": "secret"}', provider="p")
    with world(database_url, redis_url, model=script(answer)) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching:
            w.settle()
            live = watching.until_end("completed")
        assert live == seen(w, thread_of(w, run_id))
        assert [event.item.raw for event in live if isinstance(event, ItemEvent) and event.item.kind == "response"] == [
            None
        ]


def test_a_run_that_is_cancelled_ends_with_what_it_closed(w: World) -> None:
    run_id = w.start()
    with Watching(w, thread_of(w, run_id)) as watching:
        before = watching.until_end("parked")
        runs.cancel(w.db, run_id, reason="not any more", by="ann")
        closed, end = watching.until_end("cancelled")[len(before) :]
    assert isinstance(closed, ItemEvent)
    assert closed.item.kind == "resolution"
    assert isinstance(end, EndEvent)
    assert end.error is not None
    assert end.error.message == "not any more"


def test_a_run_that_failed_says_why_and_may_go_on(database_url: str, redis_url: str) -> None:
    asked = Counters()

    def reply(request: ModelRequest) -> ModelResponse:
        if asked.bump("model") == 1:
            raise ModelRequestError("scripted", "not today", retryable=False)
        return say("hello")

    with world(database_url, redis_url, model=ScriptedModel(reply)) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching:
            w.settle()
            *_, end = watching.until_end("failed")
            assert isinstance(end, EndEvent)
            assert end.error is not None
            assert end.error.type == "ModelRequestError"
            retry(w.services, run_id)
            w.settle()
            live = watching.until_end("completed")
        assert shapes(live) == ["message", "failed", "retry", "response", "completed"]
        assert live == seen(w, thread_of(w, run_id))
        with client_of(w) as client:
            assert list(client.follow(run_id)) == live


# --- a Redis that is not there -----------------------------------------------------------------------


def test_without_redis_the_stream_is_read_from_postgres(w: World) -> None:
    run_id = w.enqueue().run_id
    with connect(NOBODY_LISTENS) as gone, Watching(w, thread_of(w, run_id), events=Events(gone)) as watching:
        w.settle()
        for parks in (1, 2):
            watching.until_end("parked", parks)
            w.answer(w.the_action(run_id), YES)
        live = watching.until_end("completed")
    assert without_parks(live) == seen(w, thread_of(w, run_id))


def test_a_redis_that_forgets_in_between_changes_nothing(w: World) -> None:
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        for parks in (1, 2):
            watching.until_end("parked", parks)
            w.redis.flushall()
            w.redis.xadd(STREAM + thread_of(w, run_id), {"events": "[]"}, id="5-1")  # its clock went back
            w.answer(w.the_action(run_id), YES)
        live = watching.until_end("completed")
    assert shapes(live).count("parked") == 2
    assert without_parks(live) == seen(w, thread_of(w, run_id))


def test_what_is_too_large_for_redis_comes_from_postgres(database_url: str, redis_url: str) -> None:
    text = "x" * (MAX_EVENT_BYTES + 1)
    with world(database_url, redis_url, model=script(text)) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching:
            w.settle()
            live = watching.until_end("completed")
        assert shapes(live) == ["message", "response", "completed"]
        assert live == seen(w, thread_of(w, run_id))
        stored = w.redis.xrange(STREAM + thread_of(w, run_id))
        assert len(repr(stored)) < MAX_EVENT_BYTES


def test_an_entry_of_another_version_sends_the_viewer_to_postgres(w: World) -> None:
    run_id = w.start()
    with Watching(w, thread_of(w, run_id)) as watching:
        live = watching.until_end("parked")
        w.db.execute(MORE_ITEMS, {"run_id": run_id})
        w.redis.xadd(STREAM + thread_of(w, run_id), {"events": '[{"kind": "unheard of"}]'})
        assert shapes(watching.until(lambda events: len(events) > len(live)))[len(live)] == "start"


# --- deltas ------------------------------------------------------------------------------------------


class Dictated:
    """A model that says what a test tells it to, when it tells it to."""

    name = "dictated"

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def says(self, *lines: Any) -> None:
        """Each is a piece (part, text, tool), a response, or an error."""
        for line in lines:
            self._lines.put(line)

    async def request(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("this model is to be streamed")

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        while True:
            line = await asyncio.to_thread(self._lines.get)
            match line:
                case ModelResponse():
                    return line
                case Exception():
                    raise line
                case _:
                    deltas.add(*line)


class Settling:
    """A worker in a thread, that drives all that is due."""

    def __init__(self, w: World) -> None:
        self._thread = threading.Thread(target=w.settle)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._thread.join()


def said(events: list[Event]) -> dict[int, str]:
    """What a viewer shows of the turn that goes on, by the rule that is documented."""
    parts: dict[int, str] = {}
    for event in events:
        match event:
            case DeltaEvent():
                parts[event.part] = parts.get(event.part, "")[: event.offset] + event.text
            case VoidEvent():
                parts.clear()
            case ItemEvent() if isinstance(event.item, ResponseItem | FaultItem):
                parts.clear()
    return parts


def saying(text: str) -> Callable[[list[Event]], bool]:
    return lambda events: said(events).get(0) == text


@pytest.fixture
def model() -> Dictated:
    return Dictated()


@pytest.fixture
def speaker(database_url: str, redis_url: str, model: Dictated) -> Iterator[World]:
    with world(database_url, redis_url, ask_twice, model=model, stream=True) as made:
        yield made


def test_a_response_is_seen_while_it_comes(speaker: World, model: Dictated) -> None:
    w = speaker
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching, Settling(w):
        model.says((0, "Let me "), (0, "ask."))
        watching.until(saying("Let me ask."))
        model.says((1, '{"x"', "ask_twice"), (1, ": 1}", "ask_twice"))
        live = watching.until(lambda events: said(events) == {0: "Let me ask.", 1: '{"x": 1}'})
        assert {delta.tool for delta in live if isinstance(delta, DeltaEvent) and delta.part == 1} == {"ask_twice"}
        assert {delta.call_id for delta in live if isinstance(delta, DeltaEvent)} == {"root"}
        model.says(say("Let me ask. Done."))
        live = watching.until_end("completed")
    assert said(live) == {}
    assert shapes([event for event in live if not isinstance(event, DeltaEvent)]) == [
        "message",
        "response",
        "completed",
    ]
    assert len({event.id for event in live}) == len(live)
    assert seen(w, thread_of(w, run_id)) == [event for event in live if not isinstance(event, DeltaEvent)]


def test_who_joins_in_the_middle_of_a_response_gets_its_beginning(speaker: World, model: Dictated) -> None:
    w = speaker
    run_id = w.enqueue().run_id
    thread_id = thread_of(w, run_id)
    with Settling(w):
        model.says((0, "One "))
        with Watching(w, thread_id) as first:
            live = first.until(saying("One "))
        model.says((0, "two"))
        with Watching(w, thread_id) as late:
            late.until(saying("One two"))
        with Watching(w, thread_id, live[0].id) as after_the_message:
            after_the_message.until(saying("One two"))
        with Watching(w, thread_id, live[-1].id) as again:
            rest = again.until(bool)
        assert [(event.offset, event.text) for event in rest if isinstance(event, DeltaEvent)] == [(4, "two")]
        model.says(say("One two."))
    assert shapes(seen(w, thread_id, live[-1].id)) == ["response", "completed"]


def test_deltas_of_an_attempt_that_broke_are_void(database_url: str, redis_url: str, model: Dictated) -> None:
    async def at_once(seconds: float) -> None:
        return

    retrying = RetryingModel(model, sleep=at_once)
    with world(database_url, redis_url, model=retrying, stream=True) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching, Settling(w):
            model.says((0, "Once upon"))
            watching.until(saying("Once upon"))
            model.says(BROKEN)
            watching.until(lambda events: shapes(events)[-1] == "void")
            model.says((0, "Hello"))
            live = watching.until(saying("Hello"))
            model.says(say("Hello."))
            watching.until_end("completed")
    first, second = (event for event in live if isinstance(event, DeltaEvent))
    (void,) = (event for event in live if isinstance(event, VoidEvent))
    assert void.attempt == first.attempt != second.attempt
    assert second.offset == 0


def test_deltas_are_void_before_the_run_tries_again_later(speaker: World, model: Dictated) -> None:
    w = speaker
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        with Settling(w):
            model.says((0, "Once upon"))
            watching.until(saying("Once upon"))
            model.says(BROKEN)
        live = watching.until(lambda events: shapes(events)[-1] == "fault")
        assert shapes(live) == ["message", "delta", "void", "fault"]
        model.says((0, "Hello"), say("Hello."))
        w.advance(3600)
        w.sweep()
        watching.until_end("completed")


def test_deltas_of_a_worker_that_died_are_void_when_the_next_one_speaks(speaker: World, model: Dictated) -> None:
    w = speaker
    run_id = w.enqueue().run_id
    thread_id = thread_of(w, run_id)
    piece = DeltaEvent(id="1-1", run_id=run_id, call_id="root", attempt="dead", part=0, offset=0, text="Once")
    w.services.events.publish(thread_id, [piece])
    with Watching(w, thread_id) as watching, Settling(w):
        model.says((0, "Hello"))
        watching.until(saying("Hello"))
        w.services.events.publish(thread_id, [piece.model_copy(update={"offset": 4, "text": " upon"})])
        model.says((0, " you"))
        live = watching.until(saying("Hello you"))
        model.says(say("Hello you."))
    assert shapes(live) == ["message", "delta", "void", "delta", "delta"]
    assert [event.attempt for event in live if isinstance(event, VoidEvent)] == ["dead"]


def test_a_delta_of_a_turn_whose_response_was_seen_is_not_delivered(speaker: World, model: Dictated) -> None:
    w = speaker
    model.says(say("", call("ask_twice")))
    run_id = w.start()
    thread_id = thread_of(w, run_id)
    late = DeltaEvent(id="1-1", run_id=run_id, call_id="root", attempt="late", part=0, offset=0, text="x")
    ahead = late.model_copy(update={"id": "1-99"})
    with Watching(w, thread_id) as watching:
        live = watching.until_end("parked")
        w.services.events.publish(thread_id, [late])
        w.services.events.publish(thread_id, [ahead])
        w.answer(w.the_action(run_id), YES)
        assert "delta" not in shapes(watching.until_end("parked", 2))
    with Watching(w, thread_id, live[-1].id) as again:
        assert "delta" not in shapes(again.until_end("parked"))


def test_a_long_response_costs_few_commands(speaker: World, model: Dictated) -> None:
    w = speaker
    run_id = w.enqueue().run_id
    pieces = [(0, "four")] * (2 * FULL_CHARACTERS)
    with Watching(w, thread_of(w, run_id)) as watching, Settling(w):
        model.says(*pieces)
        watching.until(saying("four" * len(pieces)))
        model.says(say("done"))
    entries = w.services.events.read(thread_of(w, run_id))
    assert len(entries) < len(pieces) / 100


def test_a_redis_that_is_away_does_not_hold_up_a_response(speaker: World, model: Dictated) -> None:
    w = speaker
    with connect(NOBODY_LISTENS) as gone:
        tries = Tries(gone)
        services = replace(w.services, events=tries)
        run_id = w.enqueue().run_id
        worker = threading.Thread(target=drive, args=(services, w.hints.waiting.popleft()))
        worker.start()
        for _ in range(3):
            model.says((0, "piece"))
            wait_until(lambda: tries.deltas)
        model.says(say("done"))
        worker.join()
        assert w.run(run_id).status == "completed"
        assert tries.deltas == 1, "it is not waited for again"


class Tries(Events):
    """Counts."""

    deltas = 0

    def publish(self, thread_id: str, events: Sequence[Event], **more: Any) -> bool:
        self.deltas += any(isinstance(event, DeltaEvent) for event in events)
        return super().publish(thread_id, events, **more)


def test_an_agent_that_is_not_told_to_stream_does_not(database_url: str, redis_url: str) -> None:
    with world(database_url, redis_url, model=script("one two three")) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching:
            w.settle()
            assert shapes(watching.until_end("completed")) == ["message", "response", "completed"]


def test_a_model_that_cannot_stream_gives_its_response(database_url: str, redis_url: str) -> None:
    class Plain:
        name = "plain"

        async def request(self, request: ModelRequest) -> ModelResponse:
            return say("hello")

    for model in (Plain(), RetryingModel(Plain())):
        with world(database_url, redis_url, model=model, stream=True) as w:
            run_id = w.start()
            assert shapes(seen(w, thread_of(w, run_id))) == ["message", "response", "completed"]


def test_a_script_is_told_word_by_word(speaker: World) -> None:
    class Kept:
        pieces: list[tuple[int, str, str | None]]

        def __init__(self) -> None:
            self.pieces = []

        def add(self, part: int, text: str, tool: str | None = None) -> None:
            self.pieces.append((part, text, tool))

        def void(self) -> None:
            raise AssertionError

    kept = Kept()
    request = ModelRequest(instructions="", conversation=(UserTurn(text="go"),))
    response = asyncio.run(script(say("So be it.", call("send", to="ann"))).stream(request, kept))
    assert response.text == "So be it."
    assert kept.pieces == [
        (0, "So ", None), (0, "be ", None), (0, "it.", None), (1, '{"to": ', "send"), (1, '"ann"}', "send")
    ]  # fmt: skip
