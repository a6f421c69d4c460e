"""One reading of a type: how its values look as JSON, and nothing else.

Pydantic reads a type in several ways (strict or lax, JSON or Python, by each model's own config),
and no single one of them is what an answer needs: strict JSON lets `true` through for an enum of
1, `"yes"` for a boolean key, and refuses every date behind a `mode="before"` validator. So this
module rewrites a type's core schema into one that reads parsed JSON values *or* the Python values
themselves, strictly, whatever the models' configs say. Validation, serialization and JSON Schema
are all built from that one rewritten schema, so they cannot disagree.

Owns the rewriting. It may know pydantic's core schemas; nothing else may.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic_core import PydanticCustomError, PydanticKnownError, PydanticOmit, PydanticUseDefault, ValidationError
from typing_extensions import is_typeddict

from adjourn.schemas.contracts.distinct_keys import write_any, write_distinct
from adjourn.schemas.contracts.outputs import uninitialised
from adjourn.schemas.contracts.rewriting.tags import MARK, marked
from adjourn.schemas.contracts.rewriting.wire_leaves import (
    KEY_FORMS,
    LEAVES,
    ExactlyOneOf,
    Node,
    before,
    made_too,
    not_first,
    own_values_first,
    read_key,
    same_class,
    set_leaf,
)
from adjourn.schemas.errors import DefinitionError
from adjourn.schemas.interrupts import ensure_not_interrupted

# What an input looks like is decided here, not by the models it happens to be made of.
_OVERRULED = frozenset(
    {
        "strict",
        "coerce_numbers_to_str",
        "revalidate_instances",
        "from_attributes",
        "loc_by_alias",
        "ser_json_timedelta",
        "ser_json_temporal",
        "ser_json_bytes",
        "ser_json_inf_nan",
        "val_json_bytes",
        "val_temporal_unit",
        "polymorphic_serialization",
        # A model's own __init__ would validate again, by the model's own rules.
        "custom_init",
    }
)
_STRICT = frozenset({"int", "float", "bool", "str"})
_CONTAINERS_OF_FIELDS = frozenset({"model-fields", "typed-dict", "dataclass-args"})
_DICTS = frozenset({"dict", "frozendict", "ordered-dict", "counter"})
_SETS = frozenset({"set", "frozenset"})
_ONE_CHILD = ("schema", "values_schema", "extras_schema", "json_schema_input_schema", "return_schema")
_FUNCTIONS = frozenset({"function-before", "function-after", "function-wrap", "function-plain"})
_OTHER_CLASS = (
    {"model", "dataclass", "typed-dict", "list", "tuple", "deque", "generator", "json", "url", "multi-host-url"}
    | {"lax-or-strict", "json-or-python"}
    | _DICTS
    | _SETS
    | _FUNCTIONS
)
"""What may read a value as one of another class: text as a path, say, or a dict as a model."""
_SAME_EVERY_TIME = (list, dict, set, frozenset, tuple, str, int, float, bool, bytes, deque, OrderedDict, Counter)
_NO_FORM = {
    "generator": "it is lazy and can be read only once",
    "callable": "it is a function",
    "call": "it is a call of a function",
    "is-subclass": "it is a class",
}
_PASSED_ON = (
    ValidationError,
    PydanticCustomError,
    PydanticKnownError,
    PydanticOmit,
    PydanticUseDefault,
    ValueError,
    AssertionError,
)


def name_of(type_: Any) -> str:
    """A short name of any type or type expression."""
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)


Reading = Literal["wire", "revalidate", "given", "made", "stored", "returned", "output"]
"""How a rewritten schema reads:

- `wire`: JSON, or the Python values themselves.
- `revalidate`: the same, and instances of models are looked into again instead of trusted.
- `given`: a value that somebody gave in Python. A union takes the member whose Python value it is, if there is
  one, before it takes the JSON form of another.
- `made`: our own JSON. A field whose default is made by a function is required: another pass would make another.
- `stored`: our own JSON, which was validated when it was accepted. A date is not compared with the clock again: what
  was in the future then may be in the past now.
- `output`: nothing is read. What a tool returned is written with all that it has: fields that `__init__` does not take,
  and entries whose keys are the same text.
- `returned`: what a tool returned. Where code of the type's own makes a value out of JSON, that value is taken too, and
  a decimal may be NaN or infinite.
"""


class Wire(NamedTuple):
    """A rewritten core schema and what was found on the way."""

    schema: Node
    paths: dict[int, str]
    """The path of each node, by the node's `id`."""
    makes_values: bool
    """True if a default of some field is made by a function."""
    has_unions: bool
    reads_clock: bool
    """True if a date is compared with the clock (`FutureDatetime` and the like)."""
    writes_apart: bool
    """True if `output` may write other JSON than the rest."""


def wire_schema(type_: Any, reading: Reading = "wire") -> Wire:
    """Rewrite the core schema of `type_`. Raises `DefinitionError`, naming the field, for a type without JSON form."""
    for path, part in _parts(type_, "", set()):
        if part is object:  # which pydantic reads as Any
            raise no_json_form(type_, path, "object says nothing about the value")
    try:
        # Copied, because the schema of a type with an unknown name only raises when it is looked into.
        schema = dict(TypeAdapter(type_).core_schema)
    except Exception as error:  # pydantic's own errors, and what a type's own hooks raise
        path, part = _unknown_part(type_)
        # A schema generation error would advise to allow arbitrary types; its other errors advise well.
        known = type(error) is PydanticUserError
        problem = str(error).splitlines()[0] if known else f"{name_of(part)} is no type that has a JSON form"
        raise no_json_form(type_, path, problem) from error
    rewriting = _Rewriting(type_, schema, reading)
    return Wire(
        rewriting.schema,
        rewriting.paths,
        rewriting.makes_values,
        rewriting.has_unions,
        rewriting.reads_clock,
        rewriting.writes_apart,
    )


def no_json_form(type_: Any, path: str, problem: str) -> DefinitionError:
    """The error for the part of `type_` at `path` that cannot be written as JSON and read back."""
    where = name_of(type_) + (f" at {path}" if path else "")
    return DefinitionError(where, problem, "use a type whose values can be written as JSON and read back")


def _parts(part: Any, path: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Every type that a type is made of, with its path, from the outside in."""
    yield path, part
    origin = get_origin(part)
    if origin is Annotated:
        yield from _parts(get_args(part)[0], path, seen)
    elif origin is not None and origin is not Literal:
        step = "" if origin in (Union, UnionType) else "/*"
        for argument in get_args(part):
            yield from _parts(argument, path + step, seen)
    elif isinstance(part, type) and part not in seen:
        seen.add(part)
        for name, annotation in _annotations(part).items():
            yield from _parts(annotation, f"{path}/{name}", seen)


def _unknown_part(type_: Any) -> tuple[str, Any]:
    """The innermost part of a type that pydantic cannot read; it does not say where in a type it failed."""
    found: tuple[str, Any] = ("", type_)
    for path, part in _parts(type_, "", set()):
        try:
            dict(TypeAdapter(part).core_schema)
        except Exception:  # whatever is wrong with it
            found = (path, part)
    return found


def _annotations(type_: type) -> dict[str, Any]:
    if issubclass(type_, BaseModel):
        return {name: field.annotation for name, field in type_.model_fields.items()}
    if not (is_dataclass(type_) or is_typeddict(type_)):
        return {}
    try:
        return get_type_hints(type_)
    except (NameError, TypeError):  # names that only pydantic can resolve
        return {}


class _Rewriting:
    """One pass over one core schema. Copies, never changes, what it was given."""

    def __init__(self, type_: Any, schema: Any, reading: Reading) -> None:
        self._type = type_
        self._reading = reading
        self._revalidate = "always" if reading == "revalidate" else "never"
        self.makes_values = self.has_unions = self.reads_clock = self.writes_apart = False
        self._definitions = {each["ref"]: each for each in schema.get("definitions", ())}
        self.paths: dict[int, str] = {}
        self.schema = self._value(schema, "", {})

    def _value(self, node: Node, path: str, config: Mapping[str, Any]) -> Node:
        kind = node["type"]
        if kind in _NO_FORM:
            raise no_json_form(self._type, path, _NO_FORM[kind])
        if kind == "default" and node.get("default_factory", list) not in _SAME_EVERY_TIME:
            self.makes_values = True
            if self._reading == "made":
                return self._value(node["schema"], path, config)
        new = {key: value for key, value in node.items() if key not in _OVERRULED}
        if "config" in node:
            config = node["config"]
            new["config"] = {key: value for key, value in config.items() if key not in _OVERRULED}
        new.pop("computed_fields", None)
        if "now_op" in new:
            self.reads_clock = True
            if self._reading == "stored":
                del new["now_op"]
        if kind in ("model", "dataclass"):
            new["revalidate_instances"] = self._revalidate
        elif kind in _STRICT:
            new["strict"] = True
        if kind in _CONTAINERS_OF_FIELDS:
            self._fields(new, path, config)
        elif kind in _DICTS and "keys_schema" in new:
            new["keys_schema"] = self._key(new["keys_schema"], f"{path}/*", config)
        self._children(new, kind, path, config)
        self._output(new, kind, node)
        new = self._leaf(new, kind, path)
        if self._reading == "given" and kind in _OTHER_CLASS:
            new = same_class(new)
        if self._reading == "returned":
            new = self._returned(new, kind)
        self.paths[id(new)] = path
        return new

    def _output(self, new: Node, kind: str, node: Node) -> None:
        """Attach what writes an output, where it may write more than what is read back."""
        write: Callable[..., Any] | None = None
        own = new.get("serialization", {})
        if kind == "lax-or-strict" and "schema" in own:  # a defaultdict is written by a schema of its own
            new["serialization"] = {**own, "schema": self._value(own["schema"], "", {})}
        if kind == "any":
            write = write_any
        elif kind in _DICTS and not _has_distinct_texts(node.get("keys_schema", {"type": "any"})):
            write = write_distinct
        elif kind == "dataclass" and (names := _not_taken(node["cls"])):
            write = partial(_write_all, names)
        if write is not None:
            self.writes_apart = True
            if self._reading == "output" and "serialization" not in new:
                new["serialization"] = {"type": "function-wrap", "function": write, "when_used": "json"}

    def _leaf(self, new: Node, kind: str, path: str) -> Node:
        if kind == "tagged-union":
            return marked(new)
        if kind == "union":
            self.has_unions = True
            return own_values_first(new) if self._reading == "given" else new
        if kind in _SETS:
            return set_leaf(new)
        if kind in ("enum", "literal"):
            return self._wire_form(before(ExactlyOneOf(_expected(new), self._refusal(path)), new))
        if kind in LEAVES:
            return self._wire_form(LEAVES[kind](new))
        if kind in _FUNCTIONS:
            new["function"] = {**new["function"], "function": _guarded(new["function"]["function"])}
        return new

    def _returned(self, new: Node, kind: str) -> Node:
        if kind == "decimal":
            return {**new, "schema": {**new["schema"], "allow_inf_nan": True}}
        if kind not in (*_FUNCTIONS, "json") or _ends_in(new, ("model-fields", "dataclass-args")):
            return new
        return made_too(new if "schema" in new or kind != "json" else {**new, "schema": {"type": "any"}})

    def _wire_form(self, new: Node) -> Node:
        return not_first(new) if self._reading == "given" else new

    def _children(self, new: Node, kind: str, path: str, config: Mapping[str, Any]) -> None:
        if kind == "lax-or-strict":
            # The strict branch reads the JSON form; the lax one also takes, say, a number for an address.
            new["strict_schema"] = new["lax_schema"] = self._value(new["strict_schema"], path, config)
        elif kind == "json-or-python":
            new["json_schema"] = self._value(new["json_schema"], path, config)
            new["python_schema"] = _either(self._value(new["python_schema"], path, config), new["json_schema"])
        for key in _ONE_CHILD:
            if key in new:
                child = new[key]
                # pydantic.EncodedBytes: the text on the wire is the encoder's own and not ours to encode again.
                if child["type"] == "bytes" and kind in _FUNCTIONS and "serialization" in new:
                    new[key] = {"type": "str", "strict": True}
                else:
                    new[key] = self._value(child, path + ("/*" if key == "values_schema" else ""), config)
        if "items_schema" in new:
            items = new["items_schema"]
            new["items_schema"] = (
                [self._value(item, f"{path}/{at}", config) for at, item in enumerate(items)]
                if isinstance(items, list)
                else self._value(items, f"{path}/*", config)
            )
        if kind == "union":
            new["choices"] = [
                (self._value(_choice(choice), path, config), f"{MARK}{at}") for at, choice in enumerate(new["choices"])
            ]
        elif kind == "tagged-union":
            new["choices"] = {tag: self._value(choice, path, config) for tag, choice in new["choices"].items()}
        elif kind == "chain":
            new["steps"] = [self._value(step, path, config) for step in new["steps"]]
        elif kind == "definitions":
            new["definitions"] = [
                self._value(each, name_of(each.get("cls", "")), config) for each in new["definitions"]
            ]
        elif kind == "named-tuple":
            new["fields"] = [self._field(each, f"{path}/{each['name']}", config) for each in new["fields"]]

    def _fields(self, new: Node, path: str, config: Mapping[str, Any]) -> None:
        extra = new.get("extra_behavior", config.get("extra_fields_behavior"))
        new["extra_behavior"] = "allow" if extra == "allow" else "forbid"
        if extra == "allow" and self._reading == "output":
            new.setdefault("extras_schema", {"type": "any"})
        self.writes_apart |= extra == "allow"
        fields = new["fields"]
        if new["type"] == "dataclass-args":
            fields = [each for each in map(self._own_field, fields) if each is not None]
        if isinstance(fields, dict):
            new["fields"] = {name: self._field(each, f"{path}/{name}", config) for name, each in fields.items()}
        else:
            new["fields"] = [self._field(each, f"{path}/{each['name']}", config) for each in fields]

    def _own_field(self, field: Node) -> Node | None:
        """A field of a dataclass. One that `__init__` does not take is not in JSON that is read back: nobody can set
        it. The class makes it again, and a value with another one does not come back equal."""
        if field.get("init", True) or self._reading == "output":
            return field
        return {**field, "serialization_exclude": True} if field["schema"]["type"] == "default" else None

    def _field(self, field: Node, path: str, config: Mapping[str, Any]) -> Node:
        new = {**field, "schema": self._value(field["schema"], path, config)}
        written, read = new.get("serialization_alias"), new.get("validation_alias")
        if read is not None and (name := _read_name(read)) is not None:
            # What is written has to be read again, and an answer may only have the name that is published.
            new["serialization_alias"] = name
        elif written is not None and not _reads(read, written):
            del new["serialization_alias"]  # it is written and never read: the field's own name is used
        return new

    def _key(self, node: Node, path: str, config: Mapping[str, Any]) -> Node:
        """A dict's key: text on the wire, whatever it is in Python."""
        kind = node["type"]
        if kind == "definition-ref":
            return self._key(self._definitions[node["schema_ref"]], path, config)
        # Read otherwise than the same type as a value, so it must not share that one's name.
        node = {key: value for key, value in node.items() if key != "ref"}
        if kind in KEY_FORMS:
            shown = {"type": "str", "pattern": KEY_FORMS[kind]}
            return self._wire_form(before(read_key(kind), self._value(node, path, config), shown))
        if kind in ("enum", "literal"):
            find = ExactlyOneOf(_expected(node), self._refusal(path), keys=True)
            bare = {key: value for key, value in node.items() if key not in _OVERRULED}
            return self._wire_form(before(find, bare, {"type": "literal", "expected": find.texts}))
        if kind in ("union", "nullable", "default") or (kind in _FUNCTIONS and "schema" in node):
            new = dict(node)
            if kind == "union":
                new["choices"] = [
                    (self._key(_choice(choice), path, config), f"{MARK}{at}")
                    for at, choice in enumerate(node["choices"])
                ]
            else:
                new["schema"] = self._key(node["schema"], path, config)
            return self._leaf(new, kind, path)
        if kind in _NO_KEYS:
            raise no_json_form(self._type, path, f"a key that is a {kind} has no text form in JSON")
        return self._value(node, path, config)

    def _refusal(self, path: str) -> Callable[[str], DefinitionError]:
        return lambda problem: no_json_form(self._type, path, problem)


_DISTINCT_TEXTS = frozenset({"str", "int", "float", "bool", "date", "datetime", "time", "timedelta", "uuid", "decimal"})


def _has_distinct_texts(keys: Node) -> bool:
    """True if two keys of the type are never the same text in JSON."""
    return keys["type"] in _DISTINCT_TEXTS and "serialization" not in keys


def _not_taken(cls: Any) -> tuple[str, ...]:
    """The fields of a dataclass that its `__init__` does not take."""
    return tuple(each.name for each in dataclass_fields(cls) if not each.init)


def _write_all(names: Sequence[str], value: Any, write: Callable[[Any], Any]) -> Any:
    return uninitialised(value, names, write)


_NO_KEYS = _CONTAINERS_OF_FIELDS | _DICTS | _SETS | {"model", "dataclass", "list", "tuple", "deque", "named-tuple"}


def _ends_in(node: Node, kinds: tuple[str, ...]) -> bool:
    while node["type"] not in kinds and "schema" in node:
        node = node["schema"]
    return node["type"] in kinds


def _choice(choice: Node | tuple[Node, str]) -> Node:
    return choice[0] if isinstance(choice, tuple) else choice


def _either(python: Node, wire: Node) -> Node:
    return {"type": "union", "choices": [(python, f"{MARK}0"), (wire, f"{MARK}1")], "mode": "left_to_right"}


def _expected(node: Node) -> list[Any]:
    return list(node["members"] if node["type"] == "enum" else node["expected"])


def _read_name(alias: Any) -> str | None:
    """The name that is published of a field: the first key that it is read from. None if all of them lie deeper."""
    if isinstance(alias, str):
        return alias
    return next((path[0] for path in alias if len(path) == 1 and isinstance(path[0], str)), None)


def _reads(alias: Any, name: str) -> bool:
    if isinstance(alias, list):
        return any(part == name or part == [name] for part in alias)
    return bool(alias == name)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's validator, any exception of which is a fault of the value at that path."""

    def guarded(*args: Any) -> Any:
        try:
            return function(*args)
        except _PASSED_ON:
            raise
        except BaseException as error:  # of a Rust extension, a cancelled future, sys.exit()
            ensure_not_interrupted(error)
            raise PydanticCustomError(
                "validator", "its validator failed ({kind})", {"kind": type(error).__name__}
            ) from error

    return guarded
