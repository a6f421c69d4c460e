"""What went wrong at a provider, as one `ModelRequestError`. Decides what may be tried again, and hides secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx2
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)

from adjourn.schemas.errors import ModelRequestError

RETRYABLE = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
    httpx2.TransportError,
    ConnectionError,
    TimeoutError,
)
RETRYABLE_STATUSES = (408, 429)
FIRST_SERVER_STATUS = 500

MAX_TEXT = 500
"""Characters of a provider's own words that are kept; some send a whole page."""
SHORTEST_SECRET = 8
"""Characters below which a key is a placeholder, and hiding it would only tear words apart."""
_KEY_LIKE = re.compile(r"(?i)bearer\s+\S+|\b(?:sk|pk|xai|gsk|AIza)[-_A-Za-z0-9]{12,}")
_HIDDEN = "[hidden]"


def describe(model: str, error: Exception, *, secrets: Sequence[str] = ()) -> ModelRequestError:
    """`error`, raised by pydantic-ai or below it, as ours.

    Retryable are 408, 429 and 5xx, broken or refused connections and silence; an exhausted quota
    is not, though it is a 429 too. The text names the kind of failure and what the provider said,
    cut to `MAX_TEXT` characters, without `secrets` and without anything that looks like a key.
    """
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    said = str(error) or "no details"
    return ModelRequestError(
        model,
        f"{type(error).__name__}: {_without_secrets(said, secrets)[:MAX_TEXT]}",
        retryable=_is_retryable(error, status),
        status=status,
        retry_after=error.retry_after if isinstance(error, ModelAPIError) else None,
    )


def _is_retryable(error: Exception, status: int | None) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return False
    if isinstance(error, RETRYABLE):
        return True
    return status is not None and (status in RETRYABLE_STATUSES or status >= FIRST_SERVER_STATUS)


def _without_secrets(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, _HIDDEN)
    return _KEY_LIKE.sub(_HIDDEN, text)
