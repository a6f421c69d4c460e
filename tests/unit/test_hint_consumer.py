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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"junk",
        b"\xff",
        pickle.dumps([[HINT], {}, EMBED]),
        b"[" * 10_000,
        json.dumps([[HINT], {}, EMBED]).encode() + b" " * 20_000,
        b"{}",
        b"17",
        b"null",
        json.dumps([[HINT], {}]).encode(),
        json.dumps([[], {}, EMBED]).encode(),
        json.dumps([[HINT, HINT], {}, EMBED]).encode(),
        json.dumps([["run_1"], {}, EMBED]).encode(),
        json.dumps([[{**HINT, "due": "never"}], {}, EMBED]).encode(),
        json.dumps([[{**HINT, "run_id": 17}], {}, EMBED]).encode(),
        json.dumps([[{**HINT, "run_id": "run\0"}], {}, EMBED]).encode(),
        json.dumps([[{**HINT, "v": 2}], {}, EMBED]).encode(),
        json.dumps([[{**HINT, "extra": 1}], {}, EMBED]).encode(),
        json.dumps([[HINT], {"countdown": 1}, EMBED]).encode(),
        json.dumps([[HINT], {}, {**EMBED, "callbacks": [{"task": "celery.backend_cleanup"}]}]).encode(),
        json.dumps([[HINT], {}, None]).encode(),
    ],
)
def test_another_body_is_refused(body: bytes) -> None:
    assert isinstance(read_hint(message(body=body)), str)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        [],
        {**HEADERS, "task": []},
        {**HEADERS, "task": {"a": 1}},
        {**HEADERS, "task": "celery.backend_cleanup"},
        {**HEADERS, "id": None},
        {**HEADERS, "id": ["1"]},
        {**HEADERS, "eta": "3000-01-01T00:00:00Z"},
        {**HEADERS, "expires": "2000-01-01T00:00:00Z"},
        {**HEADERS, "timelimit": [1, 1]},
        {**HEADERS, "group": "g"},
    ],
)
def test_other_headers_are_refused(headers: Any) -> None:
    assert isinstance(read_hint(message(headers=headers)), str)


def test_another_content_type_is_refused() -> None:
    assert isinstance(read_hint(message(content_type="application/x-python-serialize")), str)
