"""Credentials: what they prove, and that they cannot be made up or stretched."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from adjourn.schemas.errors import CredentialError
from adjourn.schemas.records.credentials import sign, verify

KEY = b"k" * 32
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_proves_its_subject_for_its_scope_and_time() -> None:
    for scope in ("act_1", "*"):
        credential = sign("ann@example.com", KEY, scope=scope, expires_at=NOW + timedelta(seconds=1))
        assert verify(credential, KEY, action_id="act_1", now=lambda: NOW) == "ann@example.com"
    assert verify(sign("ann", KEY), KEY, action_id="act_1", now=lambda: NOW) == "ann"


def payload(**claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "credential",
    [
        "",
        "adj1",
        "adj1..",
        "adj1.é.é",
        sign("ann", b"another key"),
        sign("ann", KEY)[:-1],
        sign("ann", KEY) + "A",
        sign("ann", KEY).replace("adj1", "adj2"),
        f"adj1.{payload(sub='eve', scope='*')}.{sign('ann', KEY).rpartition('.')[2]}",
        sign("ann", KEY, scope="act_2"),
        sign("ann", KEY, expires_at=NOW),
        sign("ann", KEY, expires_at=NOW - timedelta(days=1)),
    ],
)
def test_anything_else_is_refused_without_a_word_of_it(credential: str) -> None:
    with pytest.raises(CredentialError) as caught:
        verify(credential, KEY, action_id="act_1", now=lambda: NOW)
    assert not credential or credential not in str(caught.value)


def test_a_time_without_a_zone_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="timezone"):
        sign("ann", KEY, expires_at=datetime(2026, 1, 1))
