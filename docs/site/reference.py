"""Write the reference pages from the code: each generator returns Markdown for one marker."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import BaseModel

import adjourn
from adjourn.schemas import errors
from adjourn.schemas.records.published import INCOMING, NAMES, json_schema
from adjourn.tasks.blocks.block import Block
from adjourn.worker.cli.program import app
from adjourn.worker.config.settings import PREFIX, Settings
from docs.site.remedies import REMEDIES

PUBLIC: Final = tuple(name for name in adjourn.__all__ if not name.startswith("__"))


def api() -> str:
    """List every public name with its first line, then describe each."""
    objects = {name: getattr(adjourn, name) for name in PUBLIC}
    groups = {
        "Functions and decorators": [name for name, each in objects.items() if not isinstance(each, type)],
        "Classes": [name for name, each in objects.items() if isinstance(each, type) and not _is_error(each)],
    }
    lines = []
    for title, names in groups.items():
        rows = [f"| [`{name}`](#adjourn.{name}) | {_cell(_first_line(objects[name]))} |" for name in names]
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|", *rows, ""]
    for title, names in groups.items():
        lines += [f"## {title} in full", ""]
        for name in names:
            lines += [f"::: adjourn.{name}", *_options(objects[name]), ""]
    return "\n".join(lines)


def _options(each: object) -> list[str]:
    """Return the lines that say which members of a public object are described."""
    if isinstance(each, type) and issubclass(each, Block):
        # The methods of a definition are for the engine; users construct it and pass it on.
        return ["    options:", "      members: false"]
    if each in (adjourn.Client, adjourn.RunHandle, adjourn.ThreadHandle):
        # Methods of a client are inherited from a class for each capability, those of handles from `Handle`.
        return ["    options:", "      inherited_members: true"]
    return []


def cli() -> str:
    """Describe every command, in the order of `adjourn --help`."""
    group: Any = typer.main.get_command(app)
    parent = group.context_class(group, info_name="adjourn")
    return "\n".join(_command(name, command, parent) for name, command in group.commands.items())


def _command(name: str, command: Any, parent: Any) -> str:
    context = command.context_class(command, info_name=name, parent=parent)
    about, *rest = inspect.cleandoc(command.help or "").split("\n\n")
    examples = [part.removeprefix("Example: ") for part in rest if part.startswith("Example: ")]
    prose = [part for part in rest if not part.startswith("Example: ")]
    records = [record for each in command.params if (record := each.get_help_record(context))]
    lines = [f"## adjourn {name}", "", _html(about), "", *(_html(part) + "\n" for part in prose)]
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    lines += ["```text", usage, "```", ""]
    if records:
        lines += ["| argument or option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(flag)}` | {_cell(_html(meaning))} |" for flag, meaning in records]
        lines += [""]
    if examples:
        lines += ["```bash", *examples, "```", ""]
    return "\n".join(lines)


def settings() -> str:
    """Describe every variable, the nested numbers of the deployment after the others."""
    nested = {name: kind for name, field in Settings.model_fields.items() if (kind := _model_in(field.annotation))}
    lines = ["## Servers and processes", "", *_variables(Settings, PREFIX, leave_out=frozenset(nested))]
    for name, kind in nested.items():
        prefix = f"{PREFIX}{name.upper()}__"
        lines += [f"## Times and limits: {prefix}…", "", *_variables(kind, prefix)]
    return "\n".join(lines)


def _variables(model: type[BaseModel], prefix: str, leave_out: frozenset[str] = frozenset()) -> Iterator[str]:
    yield from ("| variable | default | meaning |", "|---|---|---|")
    for name, field in model.model_fields.items():
        if name not in leave_out:
            meaning = _cell(field.description or f"One of {_choices(field.annotation)}.")
            yield f"| `{prefix}{name.upper()}` | {_default(field.default)} | {meaning} |"
    yield ""


def _model_in(annotation: object) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _choices(annotation: object) -> str:
    return ", ".join(f"`{choice}`" for choice in typing.get_args(annotation))


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return f"`{value:,}`".replace(",", "_") if isinstance(value, int) and value > 9999 else f"`{value}`"


def error_table() -> str:
    """Describe every error, by kind, with what to do. Raises `LookupError` if the remedies do not match the errors."""
    known = {each.__name__: each for each in _below(errors.AdjournError)}
    unmatched = sorted(known.keys() ^ REMEDIES.keys())
    if unmatched:
        raise LookupError(f"docs/site/remedies.py and the errors of Adjourn differ in: {', '.join(unmatched)}")
    lines = []
    for base in (errors.AdjournError, *errors.AdjournError.__subclasses__()):
        members = [base, *_below(base)] if base is not errors.AdjournError else [base, *_leaves()]
        if base is errors.AdjournError or base.__subclasses__():
            lines += [f"## {base.__name__}", "", _html(_first_line(base)), ""]
            lines += ["| error | means | what to do |", "|---|---|---|"]
            lines += [_error_row(each) for each in members if each is not base]
            lines += [""]
    return "\n".join(lines)


def _leaves() -> Iterator[type]:
    """The direct subclasses of the root that have none of their own."""
    return (each for each in errors.AdjournError.__subclasses__() if not each.__subclasses__())


def _below(base: type) -> Iterator[type]:
    seen: dict[type, None] = {}
    for each in base.__subclasses__():
        if each.__module__.startswith("adjourn.") and not each.__name__.startswith("_"):
            seen |= dict.fromkeys((each, *_below(each)))
    yield from seen


def _error_row(error: type) -> str:
    imported = "" if error.__name__ in PUBLIC else " *"
    means = _cell(_html(" ".join(inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].split())))
    return f"| `{error.__name__}`{imported} | {means} | {_cell(REMEDIES[error.__name__])} |"


def messages() -> str:
    """Describe every message on the wire by its JSON Schema."""
    lines = ["| message | direction |", "|---|---|"]
    lines += [
        f"| [`{name}`](#{name}) | {'you send it' if name in INCOMING else 'Adjourn sends it'} |" for name in NAMES
    ]
    for name in NAMES:
        schema = json.dumps(json_schema(name), indent=2, ensure_ascii=False)
        lines += ["", f"## {name}", "", "```json", schema, "```"]
    return "\n".join(lines)


def _is_error(kind: type) -> bool:
    return issubclass(kind, BaseException)


def _first_line(thing: object) -> str:
    if isinstance(thing, type | types.FunctionType):
        return inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return f"`{thing}`"


def _html(text: str) -> str:
    return text.replace("<", "&lt;")


def _cell(text: str) -> str:
    """Text on one line in which no character ends a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def changelog() -> str:
    """Return the changelog without its title, which the page has."""
    return (Path(__file__).parents[2] / "CHANGELOG.md").read_text().removeprefix("# Changelog\n")


GENERATORS: Final[dict[str, Callable[[], str]]] = {
    "api": api,
    "cli": cli,
    "settings": settings,
    "errors": error_table,
    "messages": messages,
    "changelog": changelog,
}
