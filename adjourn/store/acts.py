"""How the methods of a store are made of the functions that act on its database."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")


class Acts(Generic[D]):
    """The acts of one capability on one database."""

    def __init__(self, db: D) -> None:
        self._db = db


def act(function: Callable[Concatenate[D, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method that does `function` on the database of its object: the same signature, without the database."""

    @functools.wraps(function)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._db, *args, **kwargs)

    return method
