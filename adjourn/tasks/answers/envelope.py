"""From bytes to an `Answer`, and from what is no answer to something that may be kept.

Reads; looks nothing up. Says why it refuses as a `Refusal`, in words for whoever sent it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from adjourn.schemas.errors import MalformedJsonError, TooLargeError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Answer, Issue, ReceiptStatus, ShortAnswer
from adjourn.schemas.strict_json import check, dumps, pointer
from adjourn.schemas.strict_json import parse as parse_json

_KEY: Final = "".join(rf"(?:{letter}|\\u00{ord(letter):02x})" for letter in "credential")
_CREDENTIAL: Final = re.compile(rf'("{_KEY}"\s*:\s*)"(?:[^"\\]|\\.)*"?'.encode(), re.DOTALL | re.IGNORECASE)
"""In what is no JSON as well, and however its key is spelled: each letter may be an escape."""
_HIDDEN: Final = "(not kept)"
MAX_QUOTED: Final = 100
"""Of a key or value that a message to the sender repeats."""


class Refusal(Exception):
    """An answer that is not accepted: what its receipt says. Never leaves `adjourn.tasks.answers.answering`."""

    def __init__(
        self, status: ReceiptStatus, detail: str, issues: Sequence[Issue] = (), *, action_status: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.action_status = action_status
        self.detail = detail
        self.issues = tuple(issues)


def parse(raw: bytes | str, tuning: Tuning) -> Answer:
    """The answer in a message, long form or short. Raises `Refusal` (`too_large` or `malformed`)."""
    try:
        document = parse_json(raw, max_bytes=tuning.max_answer_bytes, max_depth=tuning.max_answer_depth)
    except TooLargeError as error:
        raise Refusal("too_large", str(error)) from None
    except MalformedJsonError as error:
        raise Refusal("malformed", str(error), [Issue(path=error.path, message=error.reason)]) from None
    if not isinstance(document, dict):
        raise Refusal("malformed", "an answer is a JSON object")
    try:
        if "id" in document and "action_id" not in document:
            return ShortAnswer.model_validate(document, strict=True).to_answer()
        return Answer.model_validate(document, strict=True)
    except ValidationError as error:
        issues = _issues(error)
        raise Refusal("malformed", "; ".join(f"{each.path}: {each.message}" for each in issues), issues) from None


def check_answer(answer: Answer, tuning: Tuning) -> None:
    """Hold an answer that never was bytes to the same rules. Raises `Refusal`."""
    document: Any = {name: value for name, value in answer if name != "credential"}
    try:
        check(document, max_depth=tuning.max_answer_depth)
        size = len(dumps(document).encode())
    except MalformedJsonError as error:
        raise Refusal("malformed", str(error), [Issue(path=error.path, message=error.reason)]) from None
    if size > tuning.max_answer_bytes:
        raise Refusal("too_large", str(TooLargeError("document", size, tuning.max_answer_bytes)))


def redacted_body(raw: bytes | str, limit: int) -> bytes:
    """What is kept of a refused message: its first bytes, without its credential."""
    body = raw.encode(errors="replace") if isinstance(raw, str) else raw
    try:
        document = json.loads(body) if len(body) <= limit else None
        if isinstance(document, dict) and "credential" in document:
            # Of whatever type it is.
            body = json.dumps({**document, "credential": _HIDDEN}).encode()
    except (ValueError, RecursionError):
        pass
    return _CREDENTIAL.sub(rb'\1"' + _HIDDEN.encode() + b'"', body)[:limit]


def body_of(answer: Answer) -> str:
    """The answer as JSON, to be kept: without its credential, and with `data` only if it had any."""
    return dumps(answer.model_dump(mode="json", exclude={"credential"}, exclude_unset=True))


def _issues(error: ValidationError) -> list[Issue]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [Issue(path=_pointer(each["loc"]), message=_message(each)) for each in found]


def _pointer(location: tuple[int | str, ...]) -> str:
    return pointer([str(part)[:MAX_QUOTED] for part in location])


def _message(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "no such key in an answer"
    return str(error["msg"])
