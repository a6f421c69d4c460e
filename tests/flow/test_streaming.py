"""What a viewer of a thread sees: everything in order, nothing twice, whatever Redis does and whenever it joins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import sqlalchemy as sa

from adjourn.schemas.errors import IllegalIdError, ModelRequestError, NotFoundError
from adjourn.schemas.records.events import (
    Cursor,
    DeltaEvent,
    EndEvent,
    ItemEvent,
    ParkedEvent,
    SuspensionEvent,
)
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, Usage
from adjourn.schemas.records.runs import Run
from adjourn.store import results
from adjourn.store.postgres.runs import starts as runs
from adjourn.store.postgres.threads import streams
from adjourn.store.redis.connection import connect
from adjourn.store.redis.events import MAX_EVENT_BYTES, STREAM, Events
from adjourn.tasks.lifecycle.retry import retry
from adjourn.tasks.models.scripted import ScriptedModel, call, say
from tests.flow.watching import (
    NOBODY_LISTENS,
    YES,
    Watching,
    ask_twice,
    client_of,
    played,
    script,
    seen,
    shapes,
    thread_of,
    without_parks,
)
from tests.waiting import LIMIT_SECONDS
from tests.world import Counters, World, world


@pytest.fixture
def w(database_url: str, redis_url: str) -> Iterator[World]:
    """An agent that asks twice and then is done."""
    with world(database_url, redis_url, ask_twice, model=script(call("ask_twice"), "All done.")) as made:
        yield made


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
        w.redis.flushdb()
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
    assert isinstance(end, ParkedEvent)
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
        for _ in range(results.RUNS_PER_PAGE + 2):
            w.start(thread_id=thread_id)
        for _ in range(streams.ITEMS + 5):
            w.db.execute(MORE_ITEMS, {"run_id": run_id})
        told = seen(w, thread_id)
    assert len(told) == 3 * (results.RUNS_PER_PAGE + 3) + streams.ITEMS + 5
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
        told = list(client.thread(thread_id).events(timeout=0))
        assert told[: len(recorded)] == recorded
        assert shapes(told[len(recorded) :]) == ["message", "response", "suspension", "parked"]
        assert list(client.thread(thread_id).events(after=recorded[-1].id, timeout=0)) == told[len(recorded) :]
        assert list(client.follow(run_id)) == recorded
        assert list(client.follow(second, timeout=0)) == told[len(recorded) :]
        with pytest.raises(IllegalIdError):
            client.thread(thread_id).events(after="7")
        with pytest.raises(NotFoundError):
            client.follow("run_nobody_has")


def test_who_waits_for_a_run_is_not_woken_by_deltas(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = w.enqueue().run_id
    piece = DeltaEvent(id="1-1", run_id=run_id, call_id="root", attempt="a", part=0, offset=0, text="x")
    looks = Counters()
    with client_of(w) as client:
        look = client.get_run

        def counted(id: str) -> Run:
            looks.bump("look")
            for _ in range(200):
                w.services.events.publish(thread_of(w, run_id), [piece])
            if looks["look"] == 2:
                w.settle()
            return look(id)

        monkeypatch.setattr(client, "get_run", counted)
        assert client.wait(run_id, timeout=LIMIT_SECONDS).status == "parked"
    assert looks["look"] == 2, "once at first, and once after a second of nothing but deltas"


# --- the pause, and what it costs ----------------------------------------------------------


def test_who_has_nothing_but_the_stream_can_answer_and_knows_that_the_run_is_parked(w: World) -> None:
    run_id = w.enqueue().run_id
    with Watching(w, thread_of(w, run_id)) as watching:
        w.settle()
        *_, asked, parked = watching.until_end("parked")
        assert isinstance(asked, SuspensionEvent)
        assert isinstance(parked, ParkedEvent)
        assert parked.run_id == run_id
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


def test_the_usage_of_the_responses_is_the_usage_of_the_run_over_two_parks(w: World) -> None:
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
    with (
        connect(NOBODY_LISTENS) as gone,
        Watching(w, thread_of(w, run_id), events=Events(gone, w.db.signing_key)) as watching,
    ):
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
            w.redis.flushdb()
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
