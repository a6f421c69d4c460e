"""Checks of the arguments that definitions take: of tools, agents, wait points and policies.

An argument of the wrong type must not be taken and then have no effect. Each check raises `DefinitionError`, which
names the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.errors.base import shown


def check_flag(where: str, what: str, given: object) -> None:
    """Refuse a flag that is neither True nor False: `"no"` would count as True."""
    if not isinstance(given, bool):
        raise DefinitionError(where, f"{what} is {shown(given)}", "give True or False")


def check_text(where: str, what: str, given: object) -> None:
    """Refuse what is neither text nor None."""
    if given is not None and not isinstance(given, str):
        raise DefinitionError(where, f"{what} is {shown(given)}, which is not text", "give text, or leave it out")


def check_function(where: str, what: str, given: object) -> None:
    """Refuse what is neither None nor callable."""
    if given is not None and not callable(given):
        raise DefinitionError(where, f"{what} is {shown(given)}, which is not a function", "give a function")


def check_count(where: str, what: str, given: object) -> None:
    """Refuse what is not a whole number from 0 on."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise DefinitionError(where, f"{what} is {shown(given)}", "give a whole number from 0 on")
    if given < 0:
        raise DefinitionError(where, f"{what} is negative", "give 0 or more")


def check_seconds(where: str, what: str, given: object) -> None:
    """Refuse what is not a number of seconds from 0 on."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= given < math.inf:  # type: ignore[operator]
        raise DefinitionError(where, f"{what} is {shown(given)}", "give seconds, from 0 on")


def check_instance(where: str, what: str, given: object, type_: type) -> None:
    """Refuse what is neither None nor of the type."""
    if given is not None and not isinstance(given, type_):
        problem = f"{what} is {shown(given)}, which is not {type_.__name__}"
        raise DefinitionError(where, problem, f"give {type_.__name__}(...)")


def names_of(where: str, what: str, given: Any, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names in a list, all of which are among `known` if that is given. One text is not a list of names."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DefinitionError(where, f"{what} is {shown(given)}, which is not a list", f"give a list: {what}=[...]")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise DefinitionError(where, f"{shown(name)} in {what} is not text", "give a list of texts")
        if known is not None and name not in known:
            raise DefinitionError(where, f"{what} has {name!r}", f"give some of: {', '.join(known)}")
    return names


def functions_of(where: str, what: str, given: Any) -> tuple[Callable[..., Any], ...]:
    """The functions in a list. A function by itself is not a list of them."""
    if not isinstance(given, Iterable):
        raise DefinitionError(where, f"{what} is {shown(given)}, which is not a list", f"give a list: {what}=[...]")
    functions = tuple(given)
    for each in functions:
        if not callable(each):
            raise DefinitionError(where, f"{shown(each)} in {what} is not a function", "give functions of a call")
    return functions
