"""A store that dies where a test says: just before or just after an act of the store that it wraps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from adjourn.store.protocol import CAPABILITIES, Store


class Act(NamedTuple):
    """A call of a method of a store."""

    name: str
    """The capability and the method, as in `claims.write`."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})


class FaultyStore:
    """A `store.protocol.Store` that passes every act on to `store`.

    Before it calls `before` with the act, and afterwards `after` with the act and its result. What these raise is
    what the act raises: from `before` the act was not done, from `after` it was, and its caller cannot know.
    """

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[Act], object] | None = None,
        after: Callable[[Act, Any], object] | None = None,
    ) -> None:
        self._store = store
        self.before = before
        self.after = after

    def clock(self) -> datetime:
        return cast(datetime, self._do(Act("clock"), self._store.clock))

    def signing_key(self) -> bytes:
        return cast(bytes, self._do(Act("signing_key"), self._store.signing_key))

    def ping(self) -> None:
        self._do(Act("ping"), self._store.ping)

    def close(self) -> None:
        """Close the connections of the wrapped store: never at fault, since a test has to end."""
        self._store.close()

    def __getattr__(self, capability: str) -> Any:
        if capability not in CAPABILITIES:
            raise AttributeError(capability)
        return _Capability(self, capability, getattr(self._store, capability))

    def _do(self, act: Act, done: Callable[..., Any]) -> Any:
        if self.before is not None:
            self.before(act)
        result = done(*act.args, **act.kwargs)
        if self.after is not None:
            self.after(act, result)
        return result


class _Capability:
    """One capability of a faulty store."""

    def __init__(self, store: FaultyStore, name: str, wrapped: Any) -> None:
        self._faulty, self._name, self._wrapped = store, name, wrapped

    def __getattr__(self, method: str) -> Any:
        done = getattr(self._wrapped, method)
        return lambda *args, **kwargs: self._faulty._do(Act(f"{self._name}.{method}", args, kwargs), done)
