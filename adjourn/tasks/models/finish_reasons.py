"""Finish reasons: which of them say that a response is not complete. Pure."""

from __future__ import annotations

from typing import Final

_CUT_OFF: Final = frozenset(
    {"length", "max_tokens", "max_output_tokens", "max_completion_tokens", "model_length", "token_limit", "incomplete",
     "model_context_window_exceeded", "context_length_exceeded", "pause_turn"}
)  # fmt: skip
_FILTERED: Final = frozenset(
    {"content_filter", "content_filtered", "safety", "recitation", "refusal", "blocklist", "prohibited_content", "spii",
     "image_safety", "guardrail_intervened"}
)  # fmt: skip
_BROKEN: Final = frozenset(
    {"error", "cancelled", "failed", "abort", "aborted", "malformed_function_call", "unexpected_tool_call",
     "network_error"}
)  # fmt: skip
"""The words of the providers; pydantic-ai says `length`, `content_filter` and `error` for most of them."""


def cut_off(reason: str | None) -> str | None:
    """What the model reads of the calls of a response that ended for this reason; None if it is complete.

    Nothing of an incomplete response runs, however complete a call in it looks: its arguments may be a part of
    what the model meant, and what is missing would be filled in with defaults.
    """
    word = (reason or "").strip().lower().replace("-", "_").replace(" ", "_").rpartition(".")[2]
    if word in _CUT_OFF:
        problem = "was cut off before it was complete"
    elif word in _FILTERED:
        problem = "was stopped by a content filter"
    elif word in _BROKEN:
        problem = "broke off with an error"
    else:
        return None
    return f"your response {problem} (finish reason {word!r}), so nothing of it was run; answer again, and shorter"
