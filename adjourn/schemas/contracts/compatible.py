"""Compatibility of two versions of a type, by their JSON Schemas alone.

A newer version is compatible if it reads every value that fits the older one, with the same meaning: the same fields,
of the same types, with the same defaults. Recorded values alone cannot show this: `{}` still fits after a default
changed. The decision errs on the safe side: where the schemas leave a doubt, the types are not compatible.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from adjourn.schemas.contracts.fingerprints import bare, json_types, unordered
from adjourn.schemas.contracts.rewriting.json_schema import LIMITS
from adjourn.schemas.strict_json import dumps, short_pointer

Path = tuple[str | int, ...]

_DEFINITIONS: Final = "#/$defs/"
_MOST: Final = 5
"""How many differences are listed: more do not help a reader."""
_AT_LEAST: Final = ("minLength", "minItems", "minProperties", "minContains", "ge", "gt", "min_length")
_AT_MOST: Final = ("maxLength", "maxItems", "maxProperties", "maxContains", "le", "lt", "max_length", "max_digits")
_BOUNDS: Final = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
_COMPARED: Final = frozenset(
    {
        *("properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf", "enum", "const"),
        *("default", "discriminator", "type", "$ref", "$defs", LIMITS, "pattern", "multipleOf"),
        *(name for low, high, _ in _BOUNDS for name in (low, high)),
        *_AT_LEAST,
        *_AT_MOST,
    }
)
"""Keywords with a rule of their own. Any other one has to stay as it is."""
_BESIDE_UNIONS: Final = frozenset({"anyOf", "oneOf", "discriminator", "default", "type", "required", "$defs"})


def incompatibilities(old: Any, new: Any) -> list[str]:
    """Return why `new` may not read a value of `old`, or may read it as something else. Empty if it always reads it."""
    comparison = _Comparison(old, new)
    comparison.value(comparison.old, comparison.new, ())
    return comparison.found[:_MOST]


class _Comparison:
    """One comparison of two schemas, with their definitions."""

    def __init__(self, old: Any, new: Any) -> None:
        self.old, self.new = bare(old), bare(new)
        self._old_definitions = self.old.get("$defs", {}) if isinstance(self.old, dict) else {}
        self._new_definitions = self.new.get("$defs", {}) if isinstance(self.new, dict) else {}
        self._assumed: set[tuple[str, str]] = set()
        """Pairs of definitions that are being compared: a recursive type meets itself again."""
        self.found: list[str] = []

    def value(self, old: Any, new: Any, path: Path) -> None:
        """Compare what is read at one place."""
        if isinstance(old, dict) and isinstance(new, dict) and ("$ref" in old or "$ref" in new):
            pair = (dumps(old), dumps(new))
            if pair in self._assumed:
                return
            self._assumed.add(pair)
        old, new = _followed(old, self._old_definitions), _followed(new, self._new_definitions)
        if _is_nothing(old) or (_is_anything(old) and _is_anything(new)):
            return
        if not (isinstance(old, dict) and isinstance(new, dict)) or _is_anything(old) or _is_anything(new):
            self._say(path, "has another type")
            return
        if any(key in each for key in ("anyOf", "oneOf") for each in (old, new)):
            self._union(old, new, path)
        else:
            self._single(old, new, path)

    def _say(self, path: Path, problem: str) -> None:
        self.found.append(f"{short_pointer(path) or 'the value'} {problem}")

    # --- unions -----------------------------------------------------------------------------------

    def _union(self, old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
        for key in sorted(({*old} | {*new}) - _BESIDE_UNIONS):
            if old.get("anyOf", old.get("oneOf")) and new.get("anyOf", new.get("oneOf")):
                same = dumps(old.get(key)) == dumps(new.get(key))
            else:
                same = key not in (old if "anyOf" in old or "oneOf" in old else new)
            if not same:
                self._say(path, f"has another {key}")
        olds, news = self._members(old, self._old_definitions), self._members(new, self._new_definitions)
        if not self._tag_is_there(old, new, olds):
            self._say(path, "has a tag now that earlier values may lack")
            return
        taken: list[int] = []
        for each in olds:
            at = next((at for at, other in enumerate(news) if at not in taken and not self._between(each, other)), None)
            if at is None:
                if len(olds) == len(news) == 1:
                    self.value(each, news[0], path)
                else:
                    self._say(path, "does not have every type of before, or has one that is stricter")
                return
            taken.append(at)
        before = [_followed(each, self._old_definitions) for each in olds]
        others = [_followed(other, self._new_definitions) for at, other in enumerate(news) if at not in taken]
        tagged = "discriminator" in old and "discriminator" in new
        if not all(tagged or self._apart(each, other) for each in before for other in others):
            self._say(path, "may be read as another type of its union")
        elif (
            taken != sorted(taken)
            and not tagged
            and not all(self._apart(one, other) for at, one in enumerate(before) for other in before[at + 1 :])
        ):
            self._say(path, "has the types of its union in another order")

    def _members(self, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Any]:
        members = schema.get("anyOf", schema.get("oneOf"))
        if members is None:
            return [schema]
        found = []
        for each in members:
            followed = _followed(each, definitions)
            inner = isinstance(followed, dict) and ("anyOf" in followed or "oneOf" in followed)
            # A member keeps its reference: `value` stops by it where a recursive type meets itself again.
            found += self._members(followed, definitions) if inner else [each]
        return found

    def _tag_is_there(self, old: Mapping[str, Any], new: Mapping[str, Any], olds: list[Any]) -> bool:
        """A tagged union needs its tag, even where the model of a member has a default for it."""
        tag = new.get("discriminator", {}).get("propertyName")
        if tag is None or old.get("discriminator", {}).get("propertyName") == tag:
            return True
        models = [_followed(each, self._old_definitions) for each in olds]
        return all(isinstance(each, dict) and tag in each.get("required", ()) for each in models)

    def _between(self, old: Any, new: Any) -> list[str]:
        """Compare two members on their own."""
        kept, self.found = self.found, []
        assumed = set(self._assumed)
        self.value(old, new, ())
        found, self.found = self.found, kept
        if found:
            self._assumed = assumed  # what was assumed for it was not so
        return found

    def _apart(self, old: Any, other: Any) -> bool:
        """True if no value of `old` fits `other`."""
        one, two = json_types(old), json_types(other)
        if one is None or two is None:
            return False
        if not one & two:
            return True
        values, others = _values(old), _values(other)
        if values is not None and others is not None:
            return not values & others
        if one != {"object"} or two != {"object"}:
            return False
        mine, theirs = old.get("properties", {}), other.get("properties", {})
        lacks = old.get("additionalProperties") is False and any(key not in mine for key in other.get("required", ()))
        extra = other.get("additionalProperties") is False and any(key not in theirs for key in old.get("required", ()))
        told = any(
            key in theirs and self._told_apart(mine.get(key), theirs[key])
            for key in {*old.get("required", ())} & {*other.get("required", ())}
        )
        return lacks or extra or told

    def _told_apart(self, old: Any, other: Any) -> bool:
        one, two = _values(_followed(old, self._old_definitions)), _values(_followed(other, self._new_definitions))
        return one is not None and two is not None and not one & two

    # --- types that are no unions ---------------------------------------------------------------------

    def _single(self, old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
        if _types(old) != _types(new):
            self._say(path, "has another type")
            return
        values, now = _values(old), _values(new)
        if (values is None) != (now is None):
            self._say(path, "has another type")
        elif values is not None and now is not None and not values <= now:
            self._say(path, f"does not take {', '.join(sorted(values - now))} any more")
        self._limits(old, new, path)
        for key in sorted({*old, *new} - _COMPARED):
            if dumps(old.get(key)) != dumps(new.get(key)):
                self._say(path, f"has another {key}")
        self._object(old, new, path)
        self._array(old, new, path)

    def _limits(self, old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
        for plain, exclusive, sign in _BOUNDS:
            if not _is_looser(_bound(old, plain, exclusive, sign), _bound(new, plain, exclusive, sign)):
                self._say(path, f"has a tighter {plain}")
        before, after = {**old.get(LIMITS, {}), **old}, {**new.get(LIMITS, {}), **new}
        for key, sign in [(key, 1) for key in _AT_LEAST] + [(key, -1) for key in _AT_MOST]:
            if key in after and not _is_at_most(after[key], before.get(key), sign):
                self._say(path, f"has a tighter {key}")
        own = {*_AT_LEAST, *_AT_MOST}
        for key in sorted({*old.get(LIMITS, {}), *new.get(LIMITS, {})} - own):
            now = new.get(LIMITS, {}).get(key)
            if now is not None and dumps(now) != dumps(old.get(LIMITS, {}).get(key)):
                self._say(path, f"has another {key}")
        if "pattern" in new and new["pattern"] != old.get("pattern"):
            self._say(path, "has another pattern")
        if "multipleOf" in new and not _is_multiple(old.get("multipleOf"), new["multipleOf"]):
            self._say(path, "has another multipleOf")

    def _object(self, old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
        before, after = old.get("properties", {}), new.get("properties", {})
        needed, was_needed = {*new.get("required", ())}, {*old.get("required", ())}
        rest = old.get("additionalProperties", True)
        for name, field in before.items():
            at = (*path, name)
            if name not in after:
                self._say(at, "was removed")
                continue
            if name in needed and name not in was_needed:
                self._say(at, "is required now")
            elif name not in was_needed and not self._same_default(field, after[name]):
                self._say(at, "has another default")
            self.value(field, after[name], at)
        for name in after.keys() - before.keys():
            if name in needed:
                self._say((*path, name), "was added and is required")
            elif rest is not False and "object" in (_types(old) or ()):
                self.value(rest, after[name], (*path, name))
        for name in sorted(needed - after.keys() - was_needed):
            self._say((*path, name), "is required now")
        if rest is not False:
            self.value(rest, new.get("additionalProperties", True), (*path, "*"))

    def _array(self, old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
        first, now = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(first) != len(now):
            self._say(path, "has another number of items")
            return
        for at, (one, other) in enumerate(zip(first, now, strict=True)):
            self.value(one, other, (*path, at))
        if "items" in old or "items" in new:
            self.value(old.get("items", True), new.get("items", True), (*path, "*"))

    def _same_default(self, old: Any, new: Any) -> bool:
        if not (isinstance(old, dict) and isinstance(new, dict)) or ("default" in old) != ("default" in new):
            return bool(old == new)
        return "default" not in old or self._reads_alike(old["default"], new["default"], new, old)

    def _reads_alike(self, old: Any, new: Any, schema: Any, older: Any = None) -> bool:
        """True if two defaults differ at most in fields that were added, which have their own defaults."""
        schema = _followed(schema, self._new_definitions)
        kind = schema if isinstance(schema, dict) else {}
        if isinstance(old, dict) and isinstance(new, dict):
            fields = kind.get("properties", {})
            added = new.keys() - old.keys()
            return (
                old.keys() <= new.keys()
                and all(self._reads_alike(old[key], new[key], fields.get(key)) for key in old)
                and all(dumps(new[key]) == dumps(fields.get(key, {}).get("default", _NO_DEFAULT)) for key in added)
            )
        if (
            isinstance(old, list)
            and isinstance(new, list)
            and kind.get("type") == "array"
            and not kind.get("uniqueItems")
        ):
            return dumps(old) == dumps(new)
        return dumps(unordered(old)) == dumps(unordered(new))


_NO_DEFAULT: Final = "\x00"


def _followed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema behind a reference."""
    for _ in range(len(definitions) + 1):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        schema = definitions.get(schema["$ref"].removeprefix(_DEFINITIONS))
    return schema


def _is_nothing(schema: Any) -> bool:
    return schema is False or schema == {"not": {}}


def _is_anything(schema: Any) -> bool:
    return schema is True or (isinstance(schema, dict) and not schema.keys() - {"default", "$defs"})


def _types(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The JSON types as they are said: an integer is not read as a number is."""
    said = schema.get("type")
    if said is None:
        return None
    return frozenset([said] if isinstance(said, str) else map(str, said))


def _values(schema: Any) -> frozenset[str] | None:
    """The JSON of the values that fit, if the schema lists them."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return frozenset([dumps(schema["const"])])
    return frozenset(map(dumps, schema["enum"])) if "enum" in schema else None


def _bound(schema: Mapping[str, Any], plain: str, exclusive: str, sign: int) -> tuple[float, bool] | None:
    """The tighter of two bounds, as if both were lower ones, and if it is exclusive."""
    said = [(sign * schema[key], key == exclusive) for key in (plain, exclusive) if key in schema]
    return max(said, default=None)


def _is_looser(old: tuple[float, bool] | None, new: tuple[float, bool] | None) -> bool:
    return new is None or (old is not None and new <= old)


def _is_at_most(new: Any, old: Any, sign: int) -> bool:
    """True if the bound `new` lets through all that `old` does. Bounds that are no numbers have to be the same."""
    if new == old:
        return True
    if isinstance(new, int | float) and isinstance(old, int | float):
        return sign * new <= sign * old
    try:
        one, other = datetime.fromisoformat(str(new)), datetime.fromisoformat(str(old))
        return one <= other if sign > 0 else other <= one
    except (TypeError, ValueError):  # no dates, or one of them without a zone
        return False


def _is_multiple(old: Any, new: Any) -> bool:
    if old == new:
        return True
    return isinstance(old, int) and isinstance(new, int) and new != 0 and old % new == 0
