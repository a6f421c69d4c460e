"""What a viewer sees of a response while it comes: pieces, best effort, and never of a turn that was told already."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from adjourn.schemas.errors import ModelRequestError
from adjourn.schemas.records.events import (
    AttemptDiscarded,
    DeltaEvent,
    Event,
    ItemEvent,
)
from adjourn.schemas.records.items import FaultItem, ResponseItem
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, UserTurn
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import Events
from adjourn.tasks.execution.drive import drive
from adjourn.tasks.models.protocol import Deltas
from adjourn.tasks.models.retry import RetryingModel
from adjourn.tasks.models.scripted import call, say
from adjourn.tasks.streaming.deltas import FULL_CHARACTERS
from tests.flow.watching import (
    NOBODY_LISTENS,
    YES,
    Watching,
    ask_twice,
    script,
    seen,
    shapes,
    thread_of,
)
from tests.waiting import wait_until
from tests.world import World, world

BROKEN = ModelRequestError("dictated", "the connection broke", retryable=True)


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
            case AttemptDiscarded():
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
    (void,) = (event for event in live if isinstance(event, AttemptDiscarded))
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
    assert [event.attempt for event in live if isinstance(event, AttemptDiscarded)] == ["dead"]


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
        tries = Tries(gone, w.db.signing_key)
        services = replace(w.services, events=tries)
        run_id = w.enqueue().run_id
        worker = threading.Thread(target=drive, args=(services, w.wakeups.waiting.popleft()))
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

        def discard(self) -> None:
            raise AssertionError

    kept = Kept()
    request = ModelRequest(instructions="", conversation=(UserTurn(text="go"),))
    response = asyncio.run(script(say("So be it.", call("send", to="ann"))).stream(request, kept))
    assert response.text == "So be it."
    assert kept.pieces == [
        (0, "So ", None), (0, "be ", None), (0, "it.", None), (1, '{"to": ', "send"), (1, '"ann"}', "send")
    ]  # fmt: skip
