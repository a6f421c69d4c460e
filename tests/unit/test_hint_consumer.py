"""What a worker takes for a hint, and what it refuses before Celery looks at it."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from adjourn.schemas.runs import Hint
from adjourn.worker.hint_consumer import read_hint

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
HINT = {"v": 1, "run_id": "run_1", "due": "turn"}
HEADERS = {"task": "adjourn.turn", "id": "1", "eta": None, "expires": None, "timelimit": [None, None], "group": None}


def message(body: Any = None, headers: Any = HEADERS, content_type: str = "application/json") -> Any:
    raw = json.dumps([[HINT], {}, EMBED]).encode() if body is None else body
    return SimpleNamespace(headers=headers, body=raw, content_type=content_type)


def test_a_hint_is_a_hint() -> None:
    assert read_hint(message()) == Hint.model_validate(HINT)
    assert read_hint(message(body=json.dumps([[HINT], {}, EMBED]))) == Hint.model_validate(HINT)


NOT_ONE_HINT = "the arguments are not one hint"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", NOT_ONE_HINT),
        (b"junk", NOT_ONE_HINT),
        (b"\xff", NOT_ONE_HINT),
        (pickle.dumps([[HINT], {}, EMBED]), NOT_ONE_HINT),
        (b"[" * 10_000, NOT_ONE_HINT),
        (json.dumps([[HINT], {}, EMBED]).encode() + b" " * 20_000, "larger than 10000 bytes"),
        (b"{}", NOT_ONE_HINT),
        (b"17", NOT_ONE_HINT),
        (b"null", NOT_ONE_HINT),
        (json.dumps([[HINT], {}]).encode(), NOT_ONE_HINT),
        (json.dumps([[], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[HINT, HINT], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([["run_1"], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[{**HINT, "due": "never"}], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[{**HINT, "run_id": 17}], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[{**HINT, "run_id": "run\0"}], {}, EMBED]).encode(), "NUL in a run id"),
        (json.dumps([[{**HINT, "v": 2}], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[{**HINT, "extra": 1}], {}, EMBED]).encode(), NOT_ONE_HINT),
        (json.dumps([[HINT], {"countdown": 1}, EMBED]).encode(), "more than a hint"),
        (
            json.dumps([[HINT], {}, {**EMBED, "callbacks": [{"task": "celery.backend_cleanup"}]}]).encode(),
            "more than a hint",
        ),
        (json.dumps([[HINT], {}, None]).encode(), NOT_ONE_HINT),
    ],
)
def test_another_body_is_refused(body: bytes, reason: str) -> None:
    assert read_hint(message(body=body)) == reason


FOREIGN_TASK = "not a task of this worker"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, FOREIGN_TASK),
        ({}, FOREIGN_TASK),
        ([], FOREIGN_TASK),
        ({**HEADERS, "task": []}, FOREIGN_TASK),
        ({**HEADERS, "task": {"a": 1}}, FOREIGN_TASK),
        ({**HEADERS, "task": "celery.backend_cleanup"}, FOREIGN_TASK),
        ({**HEADERS, "id": None}, "no task id"),
        ({**HEADERS, "id": ["1"]}, "no task id"),
        ({**HEADERS, "eta": "3000-01-01T00:00:00Z"}, "header 'eta' is not for hints"),
        ({**HEADERS, "expires": "2000-01-01T00:00:00Z"}, "header 'expires' is not for hints"),
        ({**HEADERS, "timelimit": [1, 1]}, "header 'timelimit' is not for hints"),
        ({**HEADERS, "group": "g"}, "header 'group' is not for hints"),
        ({**HEADERS, "stamps": {"s": 1}}, "header 'stamps' is not for hints"),
    ],
)
def test_other_headers_are_refused(headers: Any, reason: str) -> None:
    assert read_hint(message(headers=headers)) == reason


def test_another_content_type_is_refused() -> None:
    foreign = message(content_type="application/x-python-serialize")
    assert read_hint(foreign) == "content type is not application/json"
