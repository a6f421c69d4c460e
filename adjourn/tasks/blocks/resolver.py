"""Resolvers: code that may answer a wait on the spot, in the worker, before anybody else is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from adjourn.schemas.records.actions import PendingAction
from adjourn.schemas.records.answers import Answer, ShortAnswer

Said = Answer | ShortAnswer | Mapping[str, Any] | None
Resolver = Callable[[PendingAction], Said | Awaitable[Said]]
"""Given an open action, its answer, or None to leave it to others. Sync or async.

The answer is an `Answer`, or the same as a dict, or the short form: `{"ok": True, "data": {...}}`, in which the `id`
may be left out.

The answer goes through the same door as every other: what does not fit is refused, and the action
waits. A resolver is asked again about the same action if its worker dies before the answer is recorded.
"""
