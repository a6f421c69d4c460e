"""Identities. Ids are ours, sortable by age, and legal in every place where they travel.

An action's id is signed, so that an answer that comes before its suspend has committed can be
told from one to an id that somebody made up, without asking the database.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from typing import Final

from adjourn.schemas.errors import IllegalIdError, NotFoundError

_OWN_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_SIGNATURE_LENGTH: Final = 12
"""Base32 characters of HMAC kept in an action id: 60 bits, checked before any look-up."""


def _unique() -> str:
    """48 bits of milliseconds, then 80 random ones, as 26 lower-case characters of base32hex,
    the alphabet whose order is that of the bytes.

    The clock only gives index locality; no rule reads the time out of an id.
    """
    raw = int(time.time() * 1000).to_bytes(6, "big") + secrets.token_bytes(10)
    return base64.b32hexencode(raw).decode().rstrip("=").lower()


def new_thread_id() -> str:
    return f"thr_{_unique()}"


def new_run_id() -> str:
    return f"run_{_unique()}"


def new_call_id() -> str:
    """Legal for every provider: within `[A-Za-z0-9_-]`, under 40 characters."""
    return f"call_{_unique()}"


def new_claim_token() -> str:
    return secrets.token_hex(16)


def check_own_id(what: str, id: str) -> str:
    """An id that a caller chose, if it is legal. Raises `IllegalIdError`."""
    if not _is_legal(id):
        raise IllegalIdError(what, id)
    return id


def check_findable(what: str, id: str) -> None:
    """Raise `NotFoundError` for an id that nothing can have. Postgres, asked for it, may take it for no text at all."""
    if not _is_legal(id):
        raise NotFoundError(what, id)


def _is_legal(id: object) -> bool:
    return isinstance(id, str) and _OWN_ID.fullmatch(id) is not None


def new_action_id(key: bytes) -> str:
    """A fresh action id, signed with `key`."""
    unique = _unique()
    return f"act_{unique}{_signature(unique, key)}"


def is_action_id(id: str, key: bytes) -> bool:
    """Whether `new_action_id(key)` made this id. Constant time in the signature."""
    body = id.removeprefix("act_")
    if body == id or not body.isascii() or len(body) <= _SIGNATURE_LENGTH:
        return False
    unique, signature = body[:-_SIGNATURE_LENGTH], body[-_SIGNATURE_LENGTH:]
    return hmac.compare_digest(signature, _signature(unique, key))


def _signature(unique: str, key: bytes) -> str:
    mac = hmac.new(key, unique.encode(), hashlib.sha256).digest()
    return base64.b32hexencode(mac).decode().lower()[:_SIGNATURE_LENGTH]
