"""What callers of a client may give: checked here, before anything is asked of a server.

Python takes any object for any parameter. What reaches a database or a clock as something that it does not
know would come back as its error, or never. Ids are checked by `adjourn.schemas.records.ids`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import ValidationError

from adjourn.schemas.contracts.given import given_json
from adjourn.schemas.contracts.tool_names import LEGAL_NAME
from adjourn.schemas.errors import AnswerPayloadError, ConfigurationError, IllegalArgumentError, PayloadError
from adjourn.schemas.records.limits import Limits
from adjourn.schemas.records.runs import RunStatus, WhenBusy
from adjourn.schemas.records.wait_points import LONGEST_TIMEOUT
from adjourn.schemas.strict_json import JsonValue, clean, clean_text
from adjourn.tasks.blocks.app import App
from adjourn.worker.config.settings import Settings

MOST_SECONDS: Final = 10**9
"""Of a timeout: thirty years. Clocks and sockets take no more than some number, and who waits longer says `None`."""
MAX_IDENTITY: Final = 500
"""Characters, as in a credential."""
MOST_ROWS: Final = 10**6
"""Of a list that is asked for at once."""


def check_client(settings: object, app: object) -> None:
    """Raise `ConfigurationError` unless these are settings and an app, or `None`."""
    if settings is not None and not isinstance(settings, Settings):
        raise ConfigurationError("settings", f"are a {type(settings).__name__}", "give Settings, or none")
    if app is not None and not isinstance(app, App):
        raise ConfigurationError("app", f"is a {type(app).__name__}", "give the App itself, or none")


def check_agent(name: object) -> None:
    """Raise `IllegalArgumentError` unless this can name an agent, or another block."""
    if not isinstance(name, str) or not LEGAL_NAME.fullmatch(name):
        raise IllegalArgumentError("agent", name, "give the name of an agent of the app")


def check_timeout(seconds: object) -> None:
    """Raise `IllegalArgumentError` unless this is a number of seconds, or `None`."""
    if seconds is not None and not _is_time(seconds):
        raise IllegalArgumentError("timeout", seconds, "give seconds, from 0 on, or None to wait for ever")


def check_seconds(seconds: object) -> None:
    """Raise `IllegalArgumentError` unless this is a number of seconds."""
    if not _is_time(seconds):
        raise IllegalArgumentError("timeout", seconds, "give seconds, from 0 on")


def check_limit(limit: Any) -> None:
    """Raise `IllegalArgumentError` unless so many rows can be asked for."""
    if not _is_integer(limit) or not 1 <= limit <= MOST_ROWS:
        raise IllegalArgumentError("limit", limit, f"give a number from 1 to {MOST_ROWS:,}")


def check_seq(seq: object) -> None:
    """Raise `IllegalArgumentError` unless this can number an item, or is `None`."""
    if seq is not None and not _is_integer(seq):
        raise IllegalArgumentError("seq", seq, "give the seq of an item")


def check_on_change(on_change: object) -> None:
    """Raise `IllegalArgumentError` unless this can be called, or is `None`."""
    if on_change is not None and not callable(on_change):
        raise IllegalArgumentError("on_change", on_change, "give a function of a run")


def check_until(until: Any) -> None:
    """Raise `IllegalArgumentError` unless these are statuses of a run, one at least. A text is no list of them."""
    known = get_args(RunStatus)
    listed = isinstance(until, Collection) and not isinstance(until, str | bytes)
    if not listed or not until or any(each not in known for each in until):
        raise IllegalArgumentError("until", until, f"give a list of some of: {', '.join(known)}")


def check_when_busy(when_busy: object) -> None:
    """Raise `IllegalArgumentError` unless it is one of the three."""
    if when_busy not in get_args(WhenBusy):
        raise IllegalArgumentError("when_busy", when_busy, f"say one of: {', '.join(get_args(WhenBusy))}")


def check_limits(limits: object) -> None:
    """Raise `IllegalArgumentError` unless these are `Limits`, or `None`: legal ones, whoever made them."""
    if limits is None:
        return
    refused = IllegalArgumentError("limits", limits, "give Limits(...), whose numbers are above zero")
    if not isinstance(limits, Limits):
        raise refused
    try:
        Limits.model_validate(vars(limits))
    except ValidationError:
        raise refused from None


def text_or_none(what: str, text: object) -> str | None:
    """A text without NUL and lone surrogates. Raises `IllegalArgumentError` for what is none."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise IllegalArgumentError(what, text, "give text, or nothing")
    return clean_text(text)


def check_identity(identity: object) -> None:
    """Raise `IllegalArgumentError` unless this can name a person or program that answers."""
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_IDENTITY or clean_text(identity) != identity:
        raise IllegalArgumentError("identity", identity, f"give a text of 1 to {MAX_IDENTITY} characters")


def check_cancel(reason: object, identity: object) -> None:
    """Raise `IllegalArgumentError` unless these can be the reason of a cancel and who cancels, or `None`."""
    text_or_none("reason", reason)
    if identity is not None:
        check_identity(identity)


def check_span(what: str, span: object) -> None:
    """Raise `IllegalArgumentError` unless this is a span of time above zero, or `None`."""
    if span is not None and not (isinstance(span, timedelta) and timedelta(0) < span <= LONGEST_TIMEOUT):
        raise IllegalArgumentError(what, span, f"give a timedelta above zero and up to {LONGEST_TIMEOUT.days} days")


def as_json(what: str, value: Any) -> JsonValue:
    """The JSON form of a value, in order. Raises `IllegalArgumentError` if it has none."""
    if isinstance(value, (bytes, bytearray)):
        raise IllegalArgumentError(
            what, value, "bytes do not say what they encode: give text, or a model that holds them"
        )
    try:
        return clean(given_json(value, what, AnswerPayloadError, with_defaults=True))
    except Exception as error:  # of pydantic, or of code of the value's own
        said = error.issues[0] if isinstance(error, PayloadError) else type(error).__name__
        remedy = f"give text, a JSON value, or a pydantic model ({said})"
        raise IllegalArgumentError(what, value, remedy) from error


def _is_time(seconds: Any) -> bool:
    """NaN is none: it is not between anything."""
    return (isinstance(seconds, float) or _is_integer(seconds)) and 0 <= seconds <= MOST_SECONDS


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
