"""Arguments of tool calls as models write them: mostly JSON objects."""

from __future__ import annotations

import json
from typing import Any, Final

_SHOWN: Final = 200
"""Characters of the faulty text that are told back to the model."""


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments, and a fault that the model can read if the text is no JSON object.

    Empty text means no arguments: several providers send it so. A broken text must not go back
    to the provider as it came, because some parse it and refuse the whole history.
    """
    if not text.strip():
        return {}, None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        return {}, f"the arguments are not valid JSON ({reason}): {text[:_SHOWN]}"
    if not isinstance(value, dict):
        return {}, f"the arguments must be a JSON object, not {type(value).__name__}"
    return value, None
