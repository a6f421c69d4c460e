"""Statements of the documents that no other test holds."""

from __future__ import annotations

from pydantic import BaseModel

from adjourn import App, Context, DeltaEvent, WaitPoint, tool
from adjourn.tasks.models.scripted import call, say
from tests.flow.test_stream_deltas import Dictated, Settling, saying
from tests.flow.watching import Watching, shapes, thread_of
from tests.world import Counters, World, world


class Ask(BaseModel):
    prompt: str


gate = WaitPoint("gate", suspend=Ask, resume=bool)


@tool(wait_points=[gate])
def act(ctx: Context) -> str:
    """Asks before it acts."""
    return str(ctx.ask(gate, Ask(prompt="Act?")))


def test_a_streaming_agent_waits_and_its_recorded_turn_is_not_streamed_again(database_url: str, redis_url: str) -> None:
    model = Dictated()
    with world(database_url, redis_url, act, model=model, stream=True) as w:
        run_id = w.enqueue().run_id
        with Watching(w, thread_of(w, run_id)) as watching:
            with Settling(w):
                model.says((0, "First I ask."))
                watching.until(saying("First I ask."))
                model.says(say("First I ask.", call("act")))
                before = watching.until_end("parked")
            w.answer(w.the_action(run_id), True, settle=False)
            with Settling(w):
                model.says((0, "Now it is done."))
                watching.until(saying("Now it is done."))
                model.says(say("Now it is done."))
                after = watching.until_end("completed")[len(before) :]
    deltas = [event for event in after if isinstance(event, DeltaEvent)]
    assert "".join(event.text for event in deltas) == "Now it is done."
    assert shapes(after).count("response") == 1


def test_a_handler_guards_what_it_does_before_its_wait(database_url: str, redis_url: str) -> None:
    counters = Counters()

    @tool(wait_points=[gate])
    def confirm(ctx: Context, text: str) -> str:
        draft = ctx.run_once("draft", lambda: counters.bump("drafts"))
        return f"{text} {draft} {ctx.ask(gate, Ask(prompt='Send?'))}"

    w = World(App(blocks=[confirm]), database_url, redis_url)
    try:
        run_id = w.start("post", agent="confirm")
        w.answer(w.the_action(run_id), True)
        assert (w.run(run_id).output, counters["drafts"]) == ("post 1 True", 1)
    finally:
        w.close()
