"""The JSON of a value that a caller gives in Python: the data of an answer, a message to a run."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import to_jsonable_python

from adjourn.schemas.contracts.issues import shorten
from adjourn.schemas.contracts.unset import Path
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError, PayloadError, ValidationIssue
from adjourn.schemas.strict_json import MAX_DEPTH, JsonValue, short_pointer

_JSON_SCALARS = (str, int, float, bool, type(None))


def given_json(value: Any, where: str, error: type[PayloadError], *, with_defaults: bool = False) -> JsonValue:
    """Return the JSON form of a value, proven to be read back as the same value of the same type.

    JSON values pass as they are. Models, dataclasses, enums, dates and the like are written as wait points write
    them, also inside lists and dicts; fields that nobody set are left out unless `with_defaults`. Raises
    `error`, naming the path, for what has no JSON form or would not come back.
    """
    return cast(JsonValue, _json(value, (), where, error, with_defaults))


def _json(value: Any, path: Path, where: str, error: type[PayloadError], with_defaults: bool) -> Any:
    if type(value) in _JSON_SCALARS:
        return value
    if len(path) > MAX_DEPTH:  # refused or cut later, as for any JSON; what contains itself is refused here
        try:
            return to_jsonable_python(value)
        except Exception as problem:
            raise error(where, [_issue((), shorten(f"has no JSON form: {problem}"))]) from None
    if type(value) in (list, tuple):
        return [_json(each, (*path, at), where, error, with_defaults) for at, each in enumerate(value)]
    if type(value) is dict:
        named = [(_json(key, path, where, error, with_defaults), key) for key in value]
        keys = {_text(name): key for name, key in named}
        if len(keys) < len(value):
            raise error(where, [_issue(path, "two of its keys are the same text in JSON")])
        return {name: _json(value[key], (*path, name), where, error, with_defaults) for name, key in keys.items()}
    try:
        contract = Contract.of(type(value))
        write = contract.dump if with_defaults else contract.dump_set
        return write(value, where, error)
    except DefinitionError as problem:
        raise error(where, [_issue(path, f"{type(value).__name__} has no JSON form: {problem}")]) from None
    except PayloadError as problem:
        top = _issue(path, "").path
        raise error(where, [ValidationIssue(top + each.path, each.message) for each in problem.issues]) from None


def _text(key: Any) -> str:
    if isinstance(key, str):
        return key
    return {True: "true", False: "false"}[key] if isinstance(key, bool) else str(key)


def _issue(path: Path, reason: str) -> ValidationIssue:
    return ValidationIssue(short_pointer(path), reason)
