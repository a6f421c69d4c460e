"""Each public error is also the built-in error that a Python programmer catches."""

from __future__ import annotations

import inspect

import pytest

import adjourn
from adjourn.schemas import errors

KINDS: dict[str, type[Exception]] = {
    "AnswerFailed": RuntimeError,
    "AnswerRefusedError": ValueError,
    "AskAwaitedError": TypeError,
    "ChildRunError": RuntimeError,
    "ConfigurationError": ValueError,
    "DamagedRecordError": RuntimeError,
    "Declined": RuntimeError,
    "DefinitionError": ValueError,
    "Expired": TimeoutError,
    "ForkRefusedError": RuntimeError,
    "HandleClashError": ValueError,
    "IllegalArgumentError": ValueError,
    "IllegalIdError": ValueError,
    "ModelRequestError": RuntimeError,
    "NotFoundError": LookupError,
    "NotRetryableError": RuntimeError,
    "ReplayMismatchError": RuntimeError,
    "RunEndedError": RuntimeError,
    "RunIdClashError": ValueError,
    "StoreUnavailableError": ConnectionError,
    "StoredValueError": RuntimeError,
    "ThreadBusyError": RuntimeError,
    "ToolChangedError": RuntimeError,
    "ToolError": RuntimeError,
    "UnusableHandleError": RuntimeError,
    "WaitTimeoutError": TimeoutError,
}
BASES = {"AdjournError", "RequestError"}
"""They stand for several kinds."""


def test_each_public_error_is_of_a_built_in_kind() -> None:
    public = {name for name in adjourn.__all__ if name in errors.__all__ and _is_error(getattr(errors, name))}
    assert public - BASES - {"Refused"} == set(KINDS)
    for name, kind in KINDS.items():
        assert issubclass(getattr(errors, name), kind), name


def test_no_other_error_is_of_no_kind() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)
        if _is_error(error) and name not in BASES:
            assert issubclass(error, ValueError | LookupError | OSError | RuntimeError), name


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.WaitTimeoutError("a receipt", 3), "a receipt did not come within 3 s"),
        (errors.Expired("act_1", "pay.approval", "Pay?"), "pay.approval expired before anybody answered: Pay?"),
        (errors.ToolTimeoutError("pay", 3), "tool 'pay' timed out after 3 s"),
        (errors.StoreUnavailableError("PostgreSQL", "gone"), "PostgreSQL is not available: gone"),
        (errors.NotFoundError("run", "run_1"), "no run run_1"),
    ],
)
def test_the_built_in_kind_keeps_our_words(error: Exception, text: str) -> None:
    assert str(error).startswith(text)


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)
