"""Tagged unions of a rewritten core schema: which member a value names, and what stands for the members in errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from adjourn.schemas.contracts.rewriting.wire_leaves import Node
from adjourn.schemas.interrupts import ensure_not_interrupted

MARK = "\x00"
"""Begins every union label in an error's location. No key of a document does: NUL is refused at the door."""

TAGS, DISCRIMINATOR = "adjourn_tags", "adjourn_discriminator"
"""Where a rewritten tagged union keeps what it had before, for its JSON Schema."""


def marked(node: Node) -> Node:
    """A tagged union whose tags cannot be mistaken for keys in an error's location."""
    discriminator = node["discriminator"]
    labels: dict[Any, str] = {}
    for at, tag in enumerate(node["choices"]):
        labels[tag] = f"{MARK}{at}"
        if isinstance(tag, Enum):
            labels.setdefault(tag.value, labels[tag])
    find = discriminator if callable(discriminator) else _tag_finder(discriminator)

    def label(value: Any) -> str | None:
        try:
            return labels.get(find(value))
        except BaseException as error:  # a user's own discriminator, or a tag that is a list
            ensure_not_interrupted(error)
            return None

    tags = ", ".join(json.dumps(tag.value if isinstance(tag, Enum) else tag, default=str) for tag in node["choices"])
    named = f" {discriminator!r}" if isinstance(discriminator, str) else ""
    return {
        **node,
        "choices": dict(
            zip([f"{MARK}{at}" for at in range(len(node["choices"]))], node["choices"].values(), strict=True)
        ),
        "discriminator": label,
        "custom_error_type": "tag",
        "custom_error_message": f"The tag{named} should be one of: {tags}".replace("{", "(").replace("}", ")"),
        "metadata": {**node.get("metadata", {}), TAGS: list(node["choices"]), DISCRIMINATOR: discriminator},
    }


def _tag_finder(discriminator: Any) -> Callable[[Any], Any]:
    paths = [[discriminator]] if isinstance(discriminator, str) else discriminator
    paths = [path if isinstance(path, list) else [path] for path in paths]

    def find(value: Any) -> Any:
        for path in paths:
            found = value
            for part in path:
                found = found.get(part, _ABSENT) if isinstance(found, Mapping) else getattr(found, str(part), _ABSENT)
            if found is not _ABSENT:
                return found
        return None

    return find


_ABSENT = object()
