"""What a value was."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.errors.base import AdjournError


class ValidationIssue:
    """One thing that is wrong with a document: a JSON pointer and a message."""

    __slots__ = ("message", "path")

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message

    def __repr__(self) -> str:
        return f"{self.path or '/'}: {self.message}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValidationIssue) and (self.path, self.message) == (other.path, other.message)

    def __hash__(self) -> int:
        return hash((self.path, self.message))


class PayloadError(AdjournError, ValueError):
    """A document does not fit its schema. `issues` names every path."""

    what = "payload"

    def __init__(self, where: str, issues: Sequence[ValidationIssue]) -> None:
        super().__init__(f"{self.what} of {where} is not valid: " + "; ".join(map(repr, issues)))
        self.where = where
        self.issues = tuple(issues)


class SuspendPayloadError(PayloadError):
    """The data given to a suspend does not fit the wait point's suspend schema; nothing was opened."""

    what = "suspend payload"


class AnswerPayloadError(PayloadError):
    """The data of an answer does not fit the resume schema; the action is still pending."""

    what = "answer"


class ToolInputError(PayloadError):
    """The arguments of a tool call do not fit its input schema."""

    what = "input"


class ToolOutputError(PayloadError):
    """A tool returned what its output schema forbids. Its body has run to the end, with all that it does."""

    what = "output"

    def __init__(self, where: str, issues: Sequence[ValidationIssue]) -> None:
        super().__init__(where, issues)
        self.args = (f"{self}. The tool has run to its end and its effects stand; only its output could not be used",)


class RoundTripError(PayloadError):
    """A value does not come back from JSON as it went."""

    what = "value"


class MalformedJsonError(AdjournError, ValueError):
    """Bytes that are not one strict JSON document. `reason` is a short phrase."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"malformed JSON at {path or '/'}: {reason}")
        self.reason = reason
        self.path = path


class TooLargeError(AdjournError, ValueError):
    """Something is over its limit."""

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} has {size} {unit}, the limit is {limit} {unit}")
        self.what = what
        self.size = size
        self.limit = limit
        self.unit = unit
