"""Signatures of texts that the deployment keeps where others may write: HMAC-SHA256 with the deployment's key.

Owns the format of a signed text. No I/O; keys are the caller's.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_LENGTH: Final = 64
_SEPARATOR: Final = ":"


def signed(text: str, key: bytes, purpose: str) -> str:
    """`text` with its signature in front. A signature made for one `purpose` is not valid for another."""
    return f"{_signature(text, key, purpose)}{_SEPARATOR}{text}"


def verified(signed_text: str, key: bytes, purpose: str) -> str | None:
    """The text in what `signed` made; `None` if it was not made with this key for this purpose.

    Compared in constant time, and before anything of the text is read.
    """
    signature, separator, text = signed_text[:_LENGTH], signed_text[_LENGTH : _LENGTH + 1], signed_text[_LENGTH + 1 :]
    expected = _signature(text, key, purpose)
    matches = hmac.compare_digest(signature.encode(errors="replace"), expected.encode())
    return text if matches and separator == _SEPARATOR else None


def _signature(text: str, key: bytes, purpose: str) -> str:
    # NUL is in no purpose, so a purpose cannot end where another one's text begins.
    message = f"adjourn {purpose}\0{text}".encode(errors="surrogatepass")
    return hmac.new(key, message, hashlib.sha256).hexdigest()
