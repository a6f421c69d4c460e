"""Retries of a model call: what is tried again, after how long, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from adjourn.schemas.errors import ConfigurationError, DefinitionError, ModelRequestError, NewerTurnError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse, UserTurn
from adjourn.tasks.models import ProviderModel, RetryingModel, ScriptedModel, resolve

REQUEST = ModelRequest(instructions="", conversation=(UserTurn(text="hi"),))


class Failing:
    """Raises the given errors in turn, then answers."""

    name = "failing"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    async def request(self, request: ModelRequest) -> ModelResponse:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse(text="ok")


def busy(retry_after: float | None = None) -> ModelRequestError:
    return ModelRequestError("m", "busy", retryable=True, status=429, retry_after=retry_after)


def run(inner: Failing, **options: float) -> tuple[ModelResponse | ModelRequestError, list[float]]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    model = RetryingModel(inner, sleep=sleep, **options)  # type: ignore[arg-type]
    try:
        return asyncio.run(model.request(REQUEST)), slept
    except ModelRequestError as error:
        return error, slept


def assert_within(slept: Sequence[float], ceilings: Sequence[float]) -> None:
    assert len(slept) == len(ceilings)
    for seconds, ceiling in zip(slept, ceilings, strict=True):
        assert ceiling / 2 <= seconds <= ceiling


def test_retryable_errors_are_tried_again_with_growing_delays() -> None:
    inner = Failing(busy(), busy(), busy())
    outcome, slept = run(inner)
    assert isinstance(outcome, ModelResponse)
    assert inner.asked == 4
    assert_within(slept, [0.5, 1.0, 2.0])


def test_the_last_error_is_raised_after_all_attempts() -> None:
    inner = Failing(*(busy() for _ in range(9)))
    outcome, _ = run(inner, attempts=3)
    assert isinstance(outcome, ModelRequestError)
    assert (outcome.status, outcome.retryable, inner.asked) == (429, True, 3)


def test_other_errors_are_raised_at_once() -> None:
    inner = Failing(ModelRequestError("m", "bad request", retryable=False, status=400))
    outcome, slept = run(inner)
    assert isinstance(outcome, ModelRequestError)
    assert (inner.asked, slept) == (1, [])


def test_a_turn_of_a_newer_worker_is_not_tried_again_here_but_may_be_elsewhere() -> None:
    inner = Failing(NewerTurnError("m", ["hologram"]))
    outcome, _ = run(inner)
    assert isinstance(outcome, NewerTurnError)
    assert (outcome.retryable, outcome.parts, inner.asked) == (True, ("hologram",), 1)


def test_the_providers_wish_is_followed_up_to_the_cap() -> None:
    _, slept = run(Failing(busy(7.0), busy(3600.0), busy(0.0)), max_delay=20.0)
    assert slept[:2] == [7.0, 20.0]
    assert_within(slept[2:], [2.0])


def test_silence_counts_as_a_retryable_failure() -> None:
    asked: list[ModelRequest] = []
    silent = ScriptedModel(["never"], delay=3600, on_request=asked.append)

    async def no_sleep(seconds: float) -> None:
        return

    with pytest.raises(ModelRequestError, match=r"no response within 0\.01 s") as caught:
        asyncio.run(RetryingModel(silent, attempts=2, timeout=0.01, sleep=no_sleep).request(REQUEST))
    assert caught.value.retryable
    assert len(asked) == 2


def test_cancelling_is_not_retried() -> None:
    asked: list[ModelRequest] = []
    first = asyncio.Event()

    def note(request: ModelRequest) -> None:
        asked.append(request)
        first.set()

    model = RetryingModel(ScriptedModel(["never"], delay=3600, on_request=note))

    async def cancel_once_asked() -> None:
        task = asyncio.create_task(model.request(REQUEST))
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_once_asked())
    assert len(asked) == 1


def test_a_string_resolves_to_one_retrying_provider_and_an_object_to_itself() -> None:
    model = resolve("openai:gpt-5.4-mini")
    assert isinstance(model, RetryingModel)
    assert isinstance(model.inner, ProviderModel)
    assert model.name == "openai:gpt-5.4-mini"
    assert resolve("openai:gpt-5.4-mini") is model
    scripted = ScriptedModel(["x"])
    assert resolve(scripted) is scripted


@pytest.mark.parametrize("name", ["gpt-5.4-mini", "openai:", ":x", ""])
def test_a_string_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="provider:name"):
        resolve(name)


def test_a_missing_provider_layer_is_named_at_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adjourn.tasks.models.providers.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install"):
        ProviderModel("openai:gpt-5.4-mini")
