"""What a worker takes for a wake-up, and what it refuses before Celery looks at it."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from adjourn.schemas.records.runs import WakeUp
from adjourn.worker.broker.wakeup_consumer import read_wakeup

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
WAKEUP = {"v": 1, "run_id": "run_1", "due": "turn"}
HEADERS = {"task": "adjourn.turn", "id": "1", "eta": None, "expires": None, "timelimit": [None, None], "group": None}


def message(body: Any = None, headers: Any = HEADERS, content_type: str = "application/json") -> Any:
    raw = json.dumps([[WAKEUP], {}, EMBED]).encode() if body is None else body
    return SimpleNamespace(headers=headers, body=raw, content_type=content_type)


def test_a_wakeup_is_a_wakeup() -> None:
    assert read_wakeup(message()) == WakeUp.model_validate(WAKEUP)
    assert read_wakeup(message(body=json.dumps([[WAKEUP], {}, EMBED]))) == WakeUp.model_validate(WAKEUP)


NOT_ONE_WAKEUP = "the arguments are not one wake-up"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", NOT_ONE_WAKEUP),
        (b"junk", NOT_ONE_WAKEUP),
        (b"\xff", NOT_ONE_WAKEUP),
        (pickle.dumps([[WAKEUP], {}, EMBED]), NOT_ONE_WAKEUP),
        (b"[" * 10_000, NOT_ONE_WAKEUP),
        (json.dumps([[WAKEUP], {}, EMBED]).encode() + b" " * 20_000, "larger than 10000 bytes"),
        (b"{}", NOT_ONE_WAKEUP),
        (b"17", NOT_ONE_WAKEUP),
        (b"null", NOT_ONE_WAKEUP),
        (json.dumps([[WAKEUP], {}]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[WAKEUP, WAKEUP], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([["run_1"], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[{**WAKEUP, "due": "never"}], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[{**WAKEUP, "run_id": 17}], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[{**WAKEUP, "run_id": "run\0"}], {}, EMBED]).encode(), "NUL in a run id"),
        (json.dumps([[{**WAKEUP, "v": 2}], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[{**WAKEUP, "extra": 1}], {}, EMBED]).encode(), NOT_ONE_WAKEUP),
        (json.dumps([[WAKEUP], {"countdown": 1}, EMBED]).encode(), "more than a wake-up"),
        (
            json.dumps([[WAKEUP], {}, {**EMBED, "callbacks": [{"task": "celery.backend_cleanup"}]}]).encode(),
            "more than a wake-up",
        ),
        (json.dumps([[WAKEUP], {}, None]).encode(), NOT_ONE_WAKEUP),
    ],
)
def test_another_body_is_refused(body: bytes, reason: str) -> None:
    assert read_wakeup(message(body=body)) == reason


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
        ({**HEADERS, "eta": "3000-01-01T00:00:00Z"}, "header 'eta' is not for wake-ups"),
        ({**HEADERS, "expires": "2000-01-01T00:00:00Z"}, "header 'expires' is not for wake-ups"),
        ({**HEADERS, "timelimit": [1, 1]}, "header 'timelimit' is not for wake-ups"),
        ({**HEADERS, "group": "g"}, "header 'group' is not for wake-ups"),
        ({**HEADERS, "stamps": {"s": 1}}, "header 'stamps' is not for wake-ups"),
    ],
)
def test_other_headers_are_refused(headers: Any, reason: str) -> None:
    assert read_wakeup(message(headers=headers)) == reason


def test_another_content_type_is_refused() -> None:
    foreign = message(content_type="application/x-python-serialize")
    assert read_wakeup(foreign) == "content type is not application/json"
