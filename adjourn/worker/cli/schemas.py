"""The command that publishes the JSON Schema of every message on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from adjourn.schemas.records.published import NAMES, json_schema
from adjourn.worker.cli.output import say


def schema(
    name: Annotated[str | None, typer.Argument(help=f"One of {', '.join(NAMES)}; without it, all of them.")] = None,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Write each to NAME.json in this folder instead.")
    ] = None,
) -> None:
    """Print the JSON Schema of the messages that other programs read and write.

    Example: adjourn schema answer
    """
    if name is not None and name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}", param_hint="NAME")
    chosen = NAMES if name is None else (name,)
    if out is None:
        say(as_text(json_schema(name) if name else {each: json_schema(each) for each in NAMES}))
        return
    out.mkdir(parents=True, exist_ok=True)
    for each in chosen:
        (out / f"{each}.json").write_text(as_text(json_schema(each)) + "\n")


def as_text(document: dict[str, object]) -> str:
    """The one way in which schemas are written down, so that two of them can be compared as text."""
    return json.dumps(document, indent=2, ensure_ascii=False)
