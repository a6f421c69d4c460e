"""`adjourn.testing`: what a user's test can do to a run, and what it says when something is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from adjourn import Agent, Answer, AnswerRefusedError, App, Client, Context, PendingAction, call, say, tool
from adjourn.schemas.errors import ConfigurationError, DefinitionError
from adjourn.store.postgres.database import Database
from adjourn.store.redis.events import Events
from adjourn.store.scratch import move_clock
from adjourn.testing import Runner, ScriptedModel, passes
from tests.flow.rehearsed_app import app, effects, provided, sending
from tests.flow.rehearsed_app import send as send_tool

BY_PATH = "tests.flow.rehearsed_app:app"
YES, NO = {"approved": True}, {"approved": False}


@pytest.fixture(autouse=True)
def no_effects() -> None:
    effects.clear()


# --- a run and its people ----------------------------------------------------------------------


def test_a_run_is_driven_to_its_wait_and_to_its_end(adjourn: Runner) -> None:
    run = adjourn.start(app, "sender", "go")
    assert run.status == "parked"
    assert run.waits_at("send.first").prompt == "first: draft of Q3?"
    run.answer(YES)
    run.answer(NO, at="send.second")
    assert (run.output, run.model_calls, run.results("send")) == ("Done.", 2, ["not sent"])
    assert effects == ["draft"]


def test_a_wrong_answer_is_refused_at_the_real_door(adjourn: Runner) -> None:
    run = adjourn.start(app, "sender", "go")
    with pytest.raises(AnswerRefusedError, match="/approved") as refused:
        run.answer({"approved": "yes"})
    assert refused.value.status == "invalid"
    run.waits_at("send.first")


def test_people_may_decline_and_fail(adjourn: Runner) -> None:
    declined, failed = adjourn.start(app, "sender", "go"), adjourn.start(app, "sender", "go")
    declined.cancel("not today")
    failed.waits_at("send.first").fail("nobody is here")
    assert "not today" in declined.results("send")[0]
    assert "nobody is here" in failed.results("send")[0]


def test_a_scripted_human_answers_by_name_or_by_a_function(adjourn: Runner) -> None:
    by_name, by_function = adjourn.start(app, "sender", "go"), adjourn.start(app, "sender", "go")

    def decide(action: PendingAction) -> Answer | None:
        return Answer(action_id=action.id, data=YES) if action.name == "send.first" else None

    by_name.answer_all({"send.first": YES, "send.second": YES})
    by_function.answer_all(decide)
    assert by_name.results("send") == ["sent draft of Q3"]
    by_function.waits_at("send.second")


def test_a_thread_goes_on_with_the_same_build(adjourn: Runner) -> None:
    model = ScriptedModel(lambda request: f"heard {request.conversation[-1].text}")
    first = adjourn.start(app, "sender", "one", models={"sender": model})
    second = first.send("two")
    assert (first.output, second.output) == ("heard one", "heard two")
    assert second.thread_id == first.thread_id


def test_a_cancelled_run_waits_for_nobody(adjourn: Runner) -> None:
    run = adjourn.start(app, "sender", "go")
    run.cancel_run("enough")
    assert (run.status, run.pending) == ("cancelled", [])


def test_a_run_that_code_under_test_started_is_adopted(adjourn: Runner) -> None:
    with Client(adjourn.settings) as client:
        run_id = client.start("sender", "go").id
        run = adjourn.adopt(app, run_id)
        (action,) = client.pending(run_id=run_id)
        action.submit(NO)
    adjourn.settle()
    assert run.results("send") == ["not sent"]


# --- models --------------------------------------------------------------------------------------


def test_models_take_the_place_of_those_of_agents_and_leave_the_app_alone(adjourn: Runner) -> None:
    given = adjourn.start(app, "sender", "go", models={"sender": sending("Q4")})
    own = adjourn.start(app, "sender", "go")
    assert given.waits_at("send.first").prompt == "first: draft of Q4?"
    assert own.waits_at("send.first").prompt == "first: draft of Q3?"


def test_no_provider_is_asked(adjourn: Runner) -> None:
    run = adjourn.start(provided, "sender", "go", models={"sendre": sending("Q4")})
    assert run.error.type == "ModelRequestError"
    assert "models={'sender': ScriptedModel(" in run.error.message
    with pytest.raises(AssertionError, match=r"not completed; it is failed .*models={'sender': ScriptedModel"):
        assert run.output


# --- processes -------------------------------------------------------------------------------------


def test_each_pass_has_a_thread_and_a_loop_of_its_own(adjourn: Runner) -> None:
    kept = threading.local()

    @tool
    def remember() -> bool:
        """Whether this thread was here before."""
        was_here, kept.here = hasattr(kept, "here"), True
        return was_here

    model = ScriptedModel([call("remember"), call("remember"), say("Done.")])
    run = adjourn.start(App(agents=[Agent("a", model=model, tools=[remember])]), "a", "go")
    assert run.results("remember") == [False, False]


def test_a_pass_closes_what_it_publishes_with(adjourn: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Counted] = []

    class Counted(Events):
        closed = 0

        def __init__(self, client: redis.Redis, key: Callable[[], bytes]) -> None:
            super().__init__(client, key)
            made.append(self)

        def close(self) -> None:
            self.closed += 1
            super().close()

    monkeypatch.setattr(passes, "Events", Counted)
    adjourn.start(app, "sender", "go")
    assert made
    assert [each.closed for each in made] == [1] * len(made)


def test_by_its_import_path_an_app_keeps_nothing_between_passes(adjourn: Runner) -> None:
    model = ScriptedModel([call("passes"), call("passes"), say("Done.")])
    here = adjourn.start(app, "sender", "go", models={"sender": model})
    elsewhere = adjourn.start(BY_PATH, "sender", "go", models={"sender": model})
    assert here.results("passes") == [1, 2]
    assert elsewhere.results("passes") == [1, 1]


def test_a_model_that_cannot_go_to_a_process_is_named(adjourn: Runner) -> None:
    with pytest.raises(DefinitionError, match="cannot be sent to a process"):
        adjourn.start(BY_PATH, "sender", "go", models={"sender": ScriptedModel(lambda request: "no")})


def test_an_app_that_is_not_there_is_named(adjourn: Runner) -> None:
    with pytest.raises(ConfigurationError, match="no module 'nowhere'"):
        adjourn.start("nowhere:app", "sender", "go")


@pytest.mark.parametrize("build", [app, BY_PATH], ids=["here", "process"])
def test_a_process_dies_between_a_body_and_its_record(adjourn: Runner, build: App | str) -> None:
    run = adjourn.start(build, "sender", "go")
    with adjourn.crash_before(output="send"):
        run.answer_all({"send.first": YES, "send.second": YES})
    assert run.results("send") == ["sent draft of Q3"]
    if build is app:
        assert effects[0] == "draft"
        assert len(effects) == 3
        assert effects[1] == effects[2]  # sent twice, under one key


def test_a_process_dies_between_an_effect_and_its_memo(adjourn: Runner) -> None:
    with adjourn.crash_before(memo="draft"):
        run = adjourn.start(app, "sender", "go")
    run.waits_at("send.first")
    assert effects == ["draft", "draft"]


def test_a_process_dies_before_a_wait_is_open(adjourn: Runner) -> None:
    with adjourn.crash_before(wait="send.first"):
        run = adjourn.start(app, "sender", "go")
    run.waits_at("send.first")
    assert effects == ["draft"]


def test_a_tool_that_kills_its_worker_fails_its_run_in_the_end(adjourn: Runner) -> None:
    run = adjourn.start(BY_PATH, "sender", "go", models={"sender": ScriptedModel([call("die")])})
    assert run.error.type == "PoisonedRunError"


def test_a_crash_that_does_not_come_fails_the_test(adjourn: Runner) -> None:
    with (
        pytest.raises(AssertionError, match="crash before the output of 'sent' never came"),
        adjourn.crash_before(output="sent"),
    ):
        adjourn.start(app, "sender", "go")


# --- time and deploys ----------------------------------------------------------------------------------


def test_a_deadline_passes_when_time_does(adjourn: Runner) -> None:
    run = adjourn.start(app, "sender", "go")
    adjourn.pass_time(timedelta(days=6))
    assert run.status == "parked"
    adjourn.pass_time(timedelta(days=1))
    assert "expired" in run.results("send")[0]


def test_only_a_database_of_the_tests_has_a_clock_that_moves(adjourn: Runner) -> None:
    db = Database(
        adjourn.settings.database.rsplit("/", 1)[0] + "/postgres?" + adjourn.settings.database.partition("?")[2]
    )
    try:
        with pytest.raises(ConfigurationError, match="'postgres' is none that a test made"):
            move_clock(db, 1)
    finally:
        db.dispose()


def test_a_deploy_takes_over_what_waits(adjourn: Runner) -> None:
    @tool(name="send", wait_points=list(send_tool.wait_points.values()), version="2")
    def changed(ctx: Context, what: str) -> str:
        """Send in another way."""
        return what

    run = adjourn.start(app, "sender", "go")
    run.deploy(App(agents=[Agent("sender", model=sending("Q3"), tools=[changed])]))
    run.answer(YES)
    assert run.error.type == "ToolChangedError"


# --- what is said when it is wrong ---------------------------------------------------------------------


def test_what_does_not_hold_says_where_the_run_is(adjourn: Runner) -> None:
    run = adjourn.start(app, "sender", "go")
    for look, problem in (
        (lambda: run.waits_at("send.third"), "no actions wait at 'send.third', not one; it is parked"),
        (lambda: run.output, "the run is not completed; it is parked"),
        (lambda: run.error, "the run has not failed; it is parked"),
        (lambda: run.answer_all({"send.third": YES}), "never waited at 'send.third'; it is parked"),
    ):
        with pytest.raises(AssertionError) as wrong:
            look()
        said, _, timeline = str(wrong.value).partition("\n\n")
        assert said == problem
        assert timeline == run.timeline
        assert "calls send(" in timeline
        assert "first: draft of Q3?" in timeline


def test_of_two_that_wait_one_has_to_be_named(adjourn: Runner) -> None:
    model = ScriptedModel([[call("send", what="Q3"), call("send", what="Q4")], say("Done.")])
    run = adjourn.start(app, "sender", "go", models={"sender": model})
    with pytest.raises(AssertionError, match="2 actions wait, not one; say which: at="):
        run.answer(NO)
    for action in reversed(run.pending):
        run.answer(NO, at=action)
    assert run.results("send") == ["not sent", "not sent"]


def test_a_script_that_asks_for_ever_is_stopped(adjourn: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adjourn.testing.run._MOST_ANSWERS", 3)
    run = adjourn.start(app, "sender", "go", models={"sender": ScriptedModel(lambda request: call("send", what="x"))})
    with pytest.raises(AssertionError, match="answered 3 times, and still it asks"):
        run.answer_all({"send.first": YES, "send.second": YES})
