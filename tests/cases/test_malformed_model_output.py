"""Malformed model output: ids, names and arguments of any shape end in paired, legal calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.messages import TextPart, ToolCallPart

from adjourn import Context, tool
from adjourn.schemas.records.items import ResponseItem
from adjourn.schemas.records.messages import ModelRequest, RequestedCall, ResultTurn, ToolCall
from adjourn.tasks.models.scripted import call, call_raw, say
from tests.cases.conftest import Build
from tests.cases.provider import Provider
from tests.cases.tools import WAYS, YES, Reader, asking, counting, number_asked
from tests.world import Counters, World, scripted


def asks(x: int, id: str | None) -> RequestedCall:
    return call_raw("ask", json.dumps({"x": x}), id=id)


def calls(w: World, run_id: str) -> list[ToolCall]:
    """Every recorded call of a run, in order."""
    return [each for item in w.items(run_id) if isinstance(item.body, ResponseItem) for each in item.body.calls]


# --- an id that comes again -------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_id_that_is_reused_in_a_later_turn_is_another_call(build: Build, way: str) -> None:
    fx, reader = Counters(), Reader()
    w = build(
        asking(way, fx),
        counting("plain", fx),
        model=scripted(asks(1, "t:1"), call_raw("plain", "", id="t:2"), asks(3, "t:1"), reader.step),
    )
    run_id = w.start()
    first = w.the_action(run_id)
    w.answer(first, {"approved": True, "note": "one"})
    third = w.the_action(run_id)
    assert (number_asked(first), number_asked(third)) == (1, 3)
    assert first.origin.tool_call_id != third.origin.tool_call_id
    assert (fx["fx:1"], fx["fx:3"]) == (1, 0), "the first answer is not the third call's"
    w.answer(third, {"approved": True, "note": "three"})
    assert reader.results == [[{"x": 1, "note": "one"}, "plain", {"x": 3, "note": "three"}]]
    assert (fx["fx:1"], fx["fx:3"], fx["plain"]) == (1, 1, 1)
    assert [each.provider_id for each in calls(w, run_id)] == ["t:1", "t:2", "t:1"]


def test_an_id_that_is_reused_across_the_runs_of_a_thread_is_another_call(build: Build) -> None:
    fx = Counters()
    seen: list[Any] = []

    def last(request: ModelRequest) -> str:
        seen.append([turn.content for turn in request.conversation if isinstance(turn, ResultTurn)])
        return "done"

    w = build(asking("inline", fx), model=scripted(asks(1, "t:1"), last))
    for note in ("first", "second"):
        run_id = w.start(thread_id="thr_1")
        w.answer(w.the_action(run_id), {"approved": True, "note": note})
    assert seen == [[{"x": 1, "note": "first"}], [{"x": 1, "note": "first"}, {"x": 1, "note": "second"}]]
    assert fx["fx"] == 2


# --- no id at all, or none that is legal ---------------------------------------------------------

IDS = [
    ("", None),
    (None, None),
    ("", ""),
    ("same", "same"),
    ("t:1", "t 1"),
    ("x" * 500, "x" * 500 + "y"),
    ("naïve", "\u0000"),
    ("\ud800", "\udfff"),
]


def test_calls_with_empty_repeated_or_illegal_ids_are_paired_with_their_results(build: Build) -> None:
    fx, reader = Counters(), Reader()
    turns = iter(IDS)
    w = build(
        asking("inline", fx),
        model=scripted(lambda _: [asks(x, id) for x, id in enumerate(next(turns), 1)], reader.step),
    )
    for ids in IDS:
        run_id = w.start()
        by_number = {number_asked(action): action for action in w.pending(run_id)}
        assert sorted(by_number) == [1, 2], ids
        for x in (2, 1):
            w.answer(by_number[x], {"approved": True, "note": f"n{x}"})
        assert reader.results.pop() == [{"x": 1, "note": "n1"}, {"x": 2, "note": "n2"}], ids
        assert len({each.id for each in calls(w, run_id)}) == 2
        assert w.run(run_id).status == "completed"
    assert fx["fx"] == 2 * len(IDS)


def test_calls_of_tools_that_are_none_are_told_so_beside_a_gate(build: Build) -> None:
    fx, reader = Counters(), Reader()
    names = ["", "no such tool", "ask!", "näme", "x" * 300, "\u0000", "ask\n", "functions.ask"]
    w = build(
        asking("entry", fx),
        model=scripted([*(call_raw(name, '{"x": 1}') for name in names), call("ask", x=2)], reader.step),
    )
    run_id = w.start()
    (action,) = w.pending(run_id)
    assert number_asked(action) == 2
    w.answer(action, YES)
    ((*problems, result),) = reader.results
    assert len(problems) == len(names)
    for problem in problems:
        assert problem.startswith("there is no tool ")
        assert problem.endswith("; the tools are: ask")
    assert result == {"x": 2, "note": None}
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 1)


# --- arguments that are no JSON object --------------------------------------------------------------

BROKEN = [
    '{"a":1,,',
    '{"x": 1',
    "{'x': 1}",
    "[1]",
    '"x"',
    "null",
    "1",
    "x=1",
    '{"x": 1} {"x": 2}',
    "\ufeff{}",
    "{" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"x": ' + "9" * 10_000 + "}",
    "\ud800",
    "\u0000",
]


@pytest.mark.parametrize("way", ["entry", "inline"])
def test_malformed_arguments_become_a_message_to_the_model_across_a_park(build: Build, way: str) -> None:
    fx, reader = Counters(), Reader()
    broken = [call_raw("ask", text) for text in BROKEN]
    w = build(asking(way, fx), model=scripted([*broken, call("ask", x=1)], reader.step))
    run_id = w.start()
    (action,) = w.pending(run_id)
    w.deploy(w.app)
    w.answer(action, YES)
    (told,) = reader.results
    for text, problem in zip(BROKEN, told, strict=False):
        assert "arguments" in problem or "input of tool 'ask' is not valid" in problem, text[:40]
    assert told[len(BROKEN) :] == [{"x": 1, "note": None}]
    assert (w.run(run_id).status, fx["fx"], len(w.outputs(run_id))) == ("completed", 1, len(BROKEN) + 1)
    assert {output.outcome for output in w.outputs(run_id)} == {"error", "success"}


def test_the_model_tries_again_and_the_broken_call_is_never_sent_back_as_it_came(build: Build) -> None:
    fx, reader = Counters(), Reader()
    w = build(asking("inline", fx), model=scripted(call_raw("ask", '{"a":1,,'), call("ask", x=1), reader.step))
    run_id = w.start()
    w.answer(w.the_action(run_id), {"approved": True, "note": "ok"})
    ((problem, result),) = reader.results
    assert "the arguments are not valid JSON" in problem
    assert '{"a":1,,' in problem
    assert result == {"x": 1, "note": "ok"}
    broken, good = calls(w, run_id)
    assert (broken.args, good.args) == ({}, {"x": 1})


ODD_BUT_READ = [
    ("", {}),
    ("  ", {}),
    ("{}", {}),
    ('{"text": "a\\u0000b\\ud800"}', {"text": "a\ufffdb\ufffd"}),
    ('{"text": "a", "text": "b"}', {"text": "b"}),
]


def test_arguments_that_are_odd_and_still_an_object_are_read(build: Build) -> None:
    seen: list[str | None] = []

    @tool(exclusive=True)
    def note(ctx: Context, text: str | None = None) -> str:
        """Note a text."""
        seen.append(text)
        return "noted"

    w = build(note, model=scripted([call_raw("note", text) for text, _ in ODD_BUT_READ], say("done")))
    run_id = w.start()
    assert [each.args for each in calls(w, run_id)] == [args for _, args in ODD_BUT_READ]
    assert seen == [args.get("text") for _, args in ODD_BUT_READ]


def test_numbers_that_json_does_not_have_do_not_break_the_next_request(build: Build) -> None:
    fx, reader = Counters(), Reader()
    texts = ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', '{"y": {"x": [NaN]}}']
    w = build(
        asking("inline", fx),
        model=scripted([*(call_raw("ask", text) for text in texts), call("ask", x=1)], reader.step),
    )
    run_id = w.start()
    w.answer(w.the_action(run_id), YES)
    ((*problems, result),) = reader.results
    assert len(problems) == len(texts)
    assert all("not valid" in problem for problem in problems)
    assert result == {"x": 1, "note": None}
    assert w.run(run_id).status == "completed"


def test_text_that_no_store_can_hold_is_repaired_in_what_the_model_says(build: Build) -> None:
    w = build(model=scripted(say("a\x00b\ud800")))
    assert w.run(w.start()).output == "a\ufffdb\ufffd"


# --- through the layer of real providers ------------------------------------------------------------------


@pytest.mark.parametrize("id", ["", "t:1", "same", "x" * 200])
def test_ids_of_a_providers_own_message_are_replaced_when_it_is_sent_back(build: Build, id: str) -> None:
    fx = Counters()
    turn = [ToolCallPart("ask", {"x": x}, tool_call_id=id) for x in (1, 2)]
    provider = Provider(turn, [ToolCallPart("ask", '{"x": 3}', tool_call_id=id)], [TextPart("done")])
    w = build(asking("inline", fx), model=provider)
    run_id = w.start()
    while pending := w.pending(run_id):
        w.answer(pending[-1], YES)
    ids = [each for each, _ in provider.calls()]
    assert [args for _, args in provider.calls()] == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert len(set(ids)) == 3
    assert ids == [each for each, _ in provider.results()]
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 3)


@pytest.mark.parametrize("args", ['{"a":1,,', "[1]", "{'x': 1}", '{"x": NaN}'])
def test_broken_arguments_of_a_providers_own_message_are_not_sent_back(build: Build, args: str) -> None:
    fx = Counters()
    turn = [ToolCallPart("ask", args, tool_call_id="t:1"), ToolCallPart("ask", {"x": 1}, tool_call_id="t:2")]
    provider = Provider(turn, [TextPart("done")])
    w = build(asking("entry", fx), model=provider)
    run_id = w.start()
    w.answer(w.the_action(run_id), YES)
    (broken, sent), (good, _) = provider.calls()
    json.dumps(sent, allow_nan=False)
    assert isinstance(sent, dict)
    (_, told), (_, result) = provider.results()
    assert "valid" in told or "must be a JSON object" in told
    assert [broken, good] == [each for each, _ in provider.results()]
    assert json.loads(result) == {"x": 1, "note": None}
    assert (w.run(run_id).status, fx["fx"]) == ("completed", 1)
