"""Credentials: proof of who answers, for channels that cannot tell (a queue knows no users).

A credential names a subject, what it may answer (one action or any), and until when, under an
HMAC of the deployment's key. Owns the format. No I/O; keys and clocks are the caller's. A
credential is a secret: nothing here puts one, or a part of one, into a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime
from typing import Final

from pydantic import AwareDatetime, Field, ValidationError

from adjourn.schemas.errors import CredentialError
from adjourn.schemas.records.record import Record

ANY_ACTION: Final = "*"
_PREFIX: Final = "adj1"
_PURPOSE: Final = b"adjourn credential 1\x00"
"""The same key signs action ids; the purpose keeps one from being taken for the other."""


class _Claims(Record):
    sub: str = Field(min_length=1, max_length=500)
    scope: str = Field(min_length=1, max_length=200)
    exp: AwareDatetime | None = None


def sign(subject: str, key: bytes, *, scope: str = ANY_ACTION, expires_at: datetime | None = None) -> str:
    """A credential that says: `subject` may answer `scope` (an action id, or `"*"`) until `expires_at` (aware)."""
    claims = _Claims(sub=subject, scope=scope, exp=expires_at)
    payload = _encoded(claims.model_dump_json(exclude_none=True).encode())
    return f"{_PREFIX}.{payload}.{_encoded(_mac(payload, key))}"


def verify(credential: str, key: bytes, *, action_id: str, now: Callable[[], datetime]) -> str:
    """The subject that the credential proves, for an answer to `action_id`.

    `now` is asked only for a credential that was issued here and has an end.
    The signature is compared in constant time, and before anything of the content is read.
    Raises `CredentialError` if it is forged, run out, or for another action.
    """
    prefix, _, rest = credential.partition(".")
    payload, _, signature = rest.partition(".")
    if prefix != _PREFIX or not hmac.compare_digest(signature.encode(), _encoded(_mac(payload, key)).encode()):
        raise CredentialError("it was not issued here")
    try:
        claims = _Claims.model_validate_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValidationError):
        raise CredentialError("it was issued by another version") from None
    if claims.exp is not None and claims.exp <= now():
        raise CredentialError("it has run out")
    if claims.scope not in (ANY_ACTION, action_id):
        raise CredentialError("it is for another action")
    return claims.sub


def _mac(payload: str, key: bytes) -> bytes:
    return hmac.new(key, _PURPOSE + payload.encode(errors="replace"), hashlib.sha256).digest()


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
