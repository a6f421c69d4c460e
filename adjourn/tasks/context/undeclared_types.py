"""The type of the answer to an undeclared wait, as a record that a later process reads before the body asks again.

A declared wait point is in the code. The type of `ctx.ask(reason=…, message=…, resume=Model)` is given at the ask,
which a pass reaches only after it has read `ctx.entry`. So the names that the type is made of are stored with the
action. Nothing is imported for them: a class that the process does not have makes the type unknown until the body asks.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, Literal, Union, get_args, get_origin

Reference = dict[str, Any]

_NAMED: Mapping[str, Any] = {"None": type(None), "Any": Any, "...": Ellipsis}


def reference_to(type_: Any) -> Reference | None:
    """Return the names that a type is made of; None for a type that is more than names (`Annotated` and the like)."""
    for name, known in _NAMED.items():
        if type_ is known or (type_ is None and name == "None"):
            return {"name": name}
    origin, arguments = get_origin(type_), get_args(type_)
    generic = getattr(type_, "__pydantic_generic_metadata__", None)
    if generic and generic["origin"] is not None:
        origin, arguments = generic["origin"], generic["args"]
    if origin is Literal:
        plain = all(
            isinstance(each, str | int | bool | None) and type(each).__module__ == "builtins" for each in arguments
        )
        return {"literal": list(arguments)} if plain else None
    if origin is None:
        return {"class": [type_.__module__, type_.__qualname__]} if isinstance(type_, type) else None
    parts = [reference_to(each) for each in arguments]
    of = {"name": "union"} if origin in (Union, types.UnionType) else reference_to(origin)
    return None if of is None or None in parts else {"of": of, "parts": parts}


def referenced(reference: Reference | None, function: Callable[..., Any] | None) -> Any:
    """Return the type, or None if a class is not found: in the modules that are loaded, or in what `function` uses."""
    try:
        return None if reference is None else _type(reference, function)
    except Exception:  # names that do not fit each other any more, after a deploy
        return None


def _type(reference: Reference, function: Callable[..., Any] | None) -> Any:
    if "name" in reference:
        return _NAMED[reference["name"]]
    if "literal" in reference:
        return Literal[tuple(reference["literal"])]
    if "class" in reference:
        module, name = reference["class"]
        return _class(module, name, function)
    parts = tuple(_type(each, function) for each in reference["parts"])
    if reference["of"] == {"name": "union"}:
        return Union[parts]  # noqa: UP007 (of a list)
    return _type(reference["of"], function)[parts[0] if len(parts) == 1 else parts]


def _class(module: str, name: str, function: Callable[..., Any] | None) -> Any:
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules[module])
        if _is_called(found, module, name):
            return found
    except (KeyError, AttributeError):
        pass  # it was defined in a function
    return next(each for each in _used_by(function) if _is_called(each, module, name))


def _is_called(found: Any, module: str, name: str) -> bool:
    return isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name)


def _used_by(function: Callable[..., Any] | None) -> Iterator[Any]:
    if function is not None:
        used = inspect.getclosurevars(inspect.unwrap(function))
        yield from (*used.nonlocals.values(), *used.globals.values())
