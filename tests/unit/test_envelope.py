"""From bytes to an answer: whatever the bytes are, there is an answer or a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.answers import Answer, Issue
from adjourn.tasks.answers.envelope import Refusal, body_of, parse, redacted_body

TUNING = Tuning(max_answer_bytes=2_000, max_answer_depth=8)
KEYS = ["v", "id", "action_id", "kind", "ok", "data", "reason", "message", "answer_id", "name", "credential", "tool"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def read(raw: bytes | str) -> Answer | Refusal:
    try:
        return parse(raw, TUNING)
    except Refusal as refusal:
        return refusal


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_refused_with_a_reason(raw: bytes | str) -> None:
    refusal = read(raw)
    assert isinstance(refusal, Refusal)
    assert refusal.status == "malformed"
    assert refusal.detail


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_object_is_an_answer_or_refused_with_a_reason(document: dict[str, Any]) -> None:
    raw = json.dumps(document)
    redacted_body(raw, 1_000)
    answer = read(raw)
    if isinstance(answer, Answer):
        assert Answer.model_validate_json(body_of(answer)) == answer.model_copy(update={"credential": None})


@given(st.text(max_size=20), st.dictionaries(st.text(), JSON, max_size=3), st.booleans())
def test_nothing_that_is_kept_holds_the_credential(rest: str, more: dict[str, Any], ascii: bool) -> None:
    raw = json.dumps({**more, "credential": f"{rest}s3cret{rest}"}, ensure_ascii=ascii)
    escaped = raw.replace("credential", r"\u0063red\u0065ntial")
    for part in (raw, raw[:-1], raw[:-3], raw + "}", escaped, escaped[:-1]):
        assert b"s3cret" not in redacted_body(part, 10_000)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"action_id": "a"}', Answer(action_id="a")),
        (b'{"action_id": "a", "data": null}', Answer(action_id="a", data=None)),
        (b'{"id": "a", "ok": true}', Answer(action_id="a", data=None)),
        (b'{"id": "a", "ok": true, "data": {"x": 1}}', Answer(action_id="a", data={"x": 1})),
        (b'{"id": "a", "ok": false, "reason": "no"}', Answer(action_id="a", kind="cancel", reason="no")),
    ],
)
def test_both_forms_are_read(raw: bytes, expected: Answer) -> None:
    answer = parse(raw, TUNING)
    assert answer.model_copy(update={"kind": expected.kind}) == expected
    assert answer.has_data == (b'ok": true' in raw or b"data" in raw)


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ({"action_id": "a", "tool": "delete_all"}, "/tool", "no such key in an answer"),
        ({"id": "a", "ok": True, "kind": "submit"}, "/kind", "no such key in an answer"),
        ({"id": "a", "ok": 1}, "/ok", "Input should be a valid boolean"),
        ({"id": "a", "ok": True, "data": [1]}, "/data", "Input should be a valid dictionary"),
        ({"action_id": "", "data": 1}, "/action_id", "String should have at least 1 character"),
        ({"action_id": "a" * 201}, "/action_id", "String should have at most 200 characters"),
        ({"action_id": "a", "v": 2}, "/v", "Input should be 1"),
        ({"action_id": 17}, "/action_id", "Input should be a valid string"),
    ],
    ids=str,
)
def test_what_is_not_quite_an_answer_is_refused(document: dict[str, Any], path: str, reason: str) -> None:
    refusal = read(json.dumps(document))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.issues) == ("malformed", (Issue(path=path, message=reason),))


def test_an_answer_that_is_too_large_is_refused() -> None:
    refusal = read(json.dumps({"action_id": "a", "reason": "x" * 2_000}))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.issues) == ("too_large", ())
    assert refusal.detail == "document has 2032 bytes, the limit is 2000 bytes"
