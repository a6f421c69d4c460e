"""What a public function takes, it honours or refuses: arguments that would have no effect are named and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from adjourn import (
    Agent,
    Answer,
    App,
    Client,
    DefinitionError,
    Parallel,
    ProviderModel,
    RequireApproval,
    RetryingModel,
    Router,
    ScriptedModel,
    Sequential,
    SubAgent,
    WaitPoint,
    client_tool,
    require_approval,
    tool,
)
from adjourn.schemas.errors import IllegalArgumentError
from adjourn.tasks.blocks.policies import approval_wait_point
from adjourn.testing.builds import Build
from adjourn.worker.cli import program
from adjourn.worker.client import answers as client_module
from tests.unit.test_odd_arguments import THREAD_START

MINUTE = timedelta(minutes=1)


class Ask(BaseModel):
    prompt: str
    amount: int = 0


class Verdict(BaseModel):
    approved: bool


gate = WaitPoint("gate", suspend=Ask, resume=Verdict)


@tool
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


def body() -> str:
    return ""


def a_tool(**options: Any) -> Any:
    return tool(**options)(body)


def a_client_tool(**options: Any) -> Any:
    return client_tool("ask", **{"description": "Ask.", "input": Ask, "output": Verdict, **options})


def a_point(**options: Any) -> Any:
    return WaitPoint(**{"name": "gate", "suspend": Ask, "resume": Verdict, **options})


def an_agent(**options: Any) -> Any:
    return Agent(**{"name": "agent", "model": ScriptedModel(["done"]), **options})


def an_approval(**options: Any) -> Any:
    return approval_wait_point(RequireApproval(**options), dict[str, Any])


def a_provider(**options: Any) -> Any:
    return ProviderModel("openai-chat:x", base_url="http://127.0.0.1:1", **options)


def a_scripted(**options: Any) -> Any:
    return ScriptedModel(**{"script": ["done"], **options})


def a_retrying(**options: Any) -> Any:
    return RetryingModel(ScriptedModel(["done"]), **options)


def a_router(**options: Any) -> Any:
    return Router(**{"name": "router", "routes": [pay], "select": lambda amount: pay, **options})


def a_rehearsal(**options: Any) -> Any:
    return Build(App(agents=[an_agent()]), **options).load()


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (a_tool, {"reenter_on": ["canceled"]}, "reenter_on has 'canceled'; give some of: cancelled, failed, expired"),
    (a_tool, {"reenter_on": "cancelled"}, "reenter_on is 'cancelled', which is not a list"),
    (a_tool, {"resumes_from": "1.0"}, "resumes_from is '1.0', which is not a list"),
    (a_tool, {"resumes_from": [1]}, "1 in resumes_from is not text"),
    (a_tool, {"version": 2}, "version is 2"),
    (a_tool, {"cacheable": "no"}, "cacheable is 'no'"),
    (a_tool, {"exclusive": 1}, "exclusive is 1"),
    (a_tool, {"repeatable": "no"}, "repeatable is 'no'"),
    (a_tool, {"own_process": "no"}, "own_process is 'no'"),
    (a_tool, {"retries": "3"}, "retries is '3'"),
    (a_tool, {"retries": True}, "retries is True"),
    (a_tool, {"retries": -1}, "retries is negative"),
    (a_tool, {"verify": "body"}, "verify is 'body'"),
    (a_tool, {"resolver": {"gate": True}}, "resolver is"),
    (a_tool, {"description": 7}, "description is 7"),
    (a_tool, {"wait_points": gate}, "wait_points is a wait point"),
    (a_tool, {"name": 7}, "tool 7"),
    (a_client_tool, {"on_timeout": "error"}, "has none; give it a timeout"),
    (a_client_tool, {"default": Verdict(approved=False)}, "has none; give it a timeout"),
    (a_client_tool, {"resumes_from": "1.0"}, "resumes_from is '1.0'"),
    (a_client_tool, {"version": 2}, "version is 2"),
    (a_client_tool, {"answerers": "ada"}, "one text"),
    (a_point, {"name": 7}, "wait point 7"),
    (a_point, {"kind": 7}, "kind is 7"),
    (a_point, {"timeout": MINUTE, "on_timeout": 7}, "on_timeout is 7; give 'fail_run'"),
    (a_point, {"timeout": MINUTE, "on_timeout": "denied", "resume": str}, "goes to default="),
    (a_point, {"timeout": MINUTE, "on_timeout": "default"}, "on_timeout is 'default', and it has no default"),
    (a_point, {"timeout": MINUTE, "on_timeout": "default", "resume": str}, "give default= the answer"),
    (a_point, {"suspend": str, "question": ["prompt"]}, "question, and its suspend data has no fields"),
    (a_point, {"suspend": list[Ask], "question": ["prompt"]}, "question, and its suspend data has no fields"),
    (a_point, {"suspend": str | int | None, "question": ["prompt"]}, "question, and its suspend data has no fields"),
    (an_agent, {"limits": {"turns": 3}}, "limits is {'turns': 3}"),
    (an_agent, {"model_settings": "hot"}, "model_settings is 'hot'"),
    (an_agent, {"tools": pay}, "is not a list"),
    (an_agent, {"policies": require_approval()}, "policies is"),
    (an_agent, {"policies": ["pay"]}, "'pay' in policies is not a function"),
    (an_agent, {"resolver": "someone"}, "resolver is 'someone'"),
    (an_agent, {"prompt": "text"}, "prompt is 'text'"),
    (an_agent, {"stream": "no"}, "stream is 'no'"),
    (an_agent, {"description": 7}, "description is 7"),
    (lambda **o: SubAgent(an_agent(), **o), {"limits": {"turns": 3}}, "limits is"),
    (lambda **o: SubAgent(an_agent(), **o), {"description": 7}, "description is 7"),
    (lambda **o: SubAgent(an_agent(), **o), {"name": ""}, "its name is not legal"),
    (lambda **o: Sequential("steps", **o), {"steps": pay}, "is not a list"),
    (lambda **o: Parallel("branches", **o), {"branches": pay}, "is not a list"),
    (a_router, {"routes": pay}, "is not a list"),
    (a_router, {"select": "pay"}, "select is 'pay'"),
    (App, {"agents": an_agent()}, "it is given one block"),
    (App, {"blocks": pay}, "it is given one block"),
    (App, {"resolver": "someone"}, "resolver is 'someone'"),
    (require_approval, {"on_timeout": "fail_run"}, "has none; give it a timeout"),
    (require_approval, {"default": {"approved": True}}, "has none; give it a timeout"),
    (require_approval, {"when": True}, "when is True"),
    (require_approval, {"prompt": 7}, "prompt is 7"),
    (require_approval, {"edit": "no"}, "edit is 'no'"),
    (
        require_approval,
        {"timeout": MINUTE, "on_timeout": "error", "default": {"approved": True}},
        "give one of the two",
    ),
    (an_approval, {"on_timeout": "error"}, "has none; give it a timeout"),
    (an_approval, {"edit": "no"}, "edit is 'no'"),
    (a_scripted, {"script": "hello"}, "its script is 'hello'"),
    (a_scripted, {"delay": -1}, "delay is -1"),
    (a_scripted, {"strict": "no"}, "strict is 'no'"),
    (a_scripted, {"on_request": 7}, "on_request is 7"),
    (a_retrying, {"attempts": 0}, "attempts is 0"),
    (a_retrying, {"first_delay": -1}, "first_delay is -1"),
    (a_retrying, {"max_delay": float("nan")}, "max_delay is nan"),
    (a_retrying, {"timeout": "1"}, "timeout is '1'"),
    (a_provider, {"read_timeout": 1.0, "settings": {"timeout": 9}}, "read_timeout and a timeout in its settings"),
    (a_provider, {"read_timeout": -1}, "read_timeout is -1"),
    (a_provider, {"fill_content": "no"}, "fill_content is 'no'"),
    (a_rehearsal, {"models": {"agnet": ScriptedModel(["x"])}}, "a model is given for 'agnet'"),
]


@pytest.mark.parametrize(
    ("make", "given", "said"), REFUSED, ids=[f"{n}-{next(iter(g))}" for n, (_, g, _) in enumerate(REFUSED)]
)
def test_a_definition_takes_nothing_that_it_would_ignore(
    make: Callable[..., Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        make(**given)
    assert said in str(refused.value)
    others = {"suspend": Ask, "question": ["prompt"]} if "question" in given else {}
    make(**others) if make in (a_tool, a_client_tool, a_point, an_agent, a_router) else None


def test_an_empty_description_is_a_description() -> None:
    @tool(description="")
    def quiet() -> str:
        """Words."""
        return ""

    assert quiet.description == ""
    assert SubAgent(an_agent(description="x"), description="").description == ""


def test_the_deadline_of_a_client_tool_may_have_a_default() -> None:
    point = a_client_tool(timeout=MINUTE, default=Verdict(approved=False)).wait_points["result"]
    assert (point.timeout, point.on_timeout, point.default) == (MINUTE, "default", {"approved": False})


def test_the_deadline_of_an_approval_is_an_error_unless_it_is_told_otherwise() -> None:
    assert an_approval(timeout=MINUTE).on_timeout == "error"
    assert an_approval(timeout=MINUTE, on_timeout="fail_run").on_timeout == "fail_run"
    for word in ({}, {"on_timeout": "default"}):
        point = an_approval(timeout=MINUTE, default={"approved": False}, **word)
        assert (point.on_timeout, point.default) == ("default", {"approved": False})


def test_an_ask_may_name_the_default_of_its_wait_point() -> None:
    point = a_point(timeout=MINUTE, default=Verdict(approved=False))
    own = point.with_terms("here", 2 * MINUTE, "default", *unset(), None)
    assert (own.timeout, own.on_timeout, own.default) == (2 * MINUTE, "default", {"approved": False})
    with pytest.raises(DefinitionError, match="it has no default"):
        a_point().with_terms("here", MINUTE, "default", *unset(), None)


def unset() -> tuple[Any]:
    from adjourn.schemas.records.wait_points import UNSET

    return (UNSET,)


def test_a_question_may_be_about_a_dict_or_a_union_with_fields() -> None:
    for suspend in (dict[str, Any], Ask | str, Any):
        assert a_point(suspend=suspend, question=["prompt"]).question == ("prompt",)


# --- clients ----------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(THREAD_START) as made:
        yield made


CALLS: list[tuple[Callable[[Client], Any], str]] = [
    (lambda c: c.thread().spawn("a", name="n", thread_id="t"), "name cannot be 'n'; give it or a"),
    (lambda c: c.resume({"id": "x", "ok": True}, ok=False), "ok cannot be False; say it in the answer"),  # type: ignore[call-overload]
    (lambda c: c.resume({"id": "x", "ok": True}, reason="r"), "reason cannot be 'r'"),  # type: ignore[call-overload]
    (lambda c: c.resume(id="x", ok=True, identity="a", credential="c"), "identity cannot be 'a'"),
    (lambda c: c.resume({"id": "x", "ok": False}, identity=""), "identity cannot be ''"),
    (lambda c: Client(THREAD_START, identity=""), "identity cannot be ''"),
    (lambda c: Client(THREAD_START, identity="a\0"), "identity cannot be"),
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=range(len(CALLS)))
def test_a_method_takes_nothing_that_it_would_ignore(client: Client, call: Callable[[Client], Any], said: str) -> None:
    with pytest.raises(IllegalArgumentError) as refused:
        call(client)
    assert said in str(refused.value)


LINES: list[tuple[list[str], str]] = [
    (["run", "agent", "go", "--timeout", "3"], "--wait"),
    (["retry", "run_1", "--timeout", "3"], "--wait"),
    (["show", "run_1", "--timeout", "3"], "--follow"),
    (["worker", "--roles", "sweep", "--concurrency", "3"], "turns"),
    (["run", "agent", "go", "--data", "1"], "either TEXT or --data"),
]


@pytest.mark.parametrize(("line", "needed"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_a_command_takes_no_option_that_it_would_ignore(
    monkeypatch: pytest.MonkeyPatch, line: list[str], needed: str
) -> None:
    for name, value in THREAD_START.as_environment().items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(program.app, line)
    assert done.exit_code == 2
    assert needed in " ".join(done.output.split())


def test_the_identity_of_a_client_goes_with_what_it_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Answer] = []
    monkeypatch.setattr(client_module, "publish", lambda settings, answer, timeout: sent.append(answer))
    monkeypatch.setattr(Client, "issue_credential", lambda self, identity, action_id: f"{identity} for {action_id}")
    with Client(THREAD_START, identity="ann") as made:
        made.publish(Answer(action_id="act_1", data=1))
        made.publish(Answer(action_id="act_1", data=1, credential="own"))
    with Client(THREAD_START) as made:
        made.publish(Answer(action_id="act_1", data=1))
    assert [answer.credential for answer in sent] == ["ann for act_1", "own", None]
