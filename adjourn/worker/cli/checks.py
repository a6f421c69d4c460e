"""The commands that look over a deployment, and the runs that a build would take over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from adjourn.schemas.internal.checks import Check
from adjourn.worker.cli.options import AppOption, JsonOption, client
from adjourn.worker.cli.output import emit_json, note, say
from adjourn.worker.process.doctor import Finding, examine
from adjourn.worker.text.lines import one_line


def doctor(app: AppOption = None, json: JsonOption = False) -> None:
    """Say what is configured, reachable and mis-set. Exits with 1 if something is wrong.

    Example: adjourn doctor --app reports:app
    """
    findings: list[Finding] = []
    for finding in examine(app):
        findings.append(finding)
        if not json:
            say(one_line(f"{finding.status:<8} {finding.what}: {finding.detail}"))
    if json:
        emit_json(findings)
    if any(finding.status == "wrong" for finding in findings):
        raise typer.Exit(1)


def check(
    run: Annotated[str | None, typer.Argument(help="The run's id; all that have not ended if left out.")] = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> None:
    """Say whether what is recorded of runs fits this code. Exits with 1 if it does not.

    Give it the new build before a deploy: without RUN it lists every run that has not ended and
    that this build would fail, with the error. Nothing runs and nothing is changed.

    Example: adjourn check --app reports:app
    """
    with client(app) as made:
        found = _misfits(made.check_all()) if run is None else [made.check(run)]
    if json:
        emit_json(found if run is None else found[0])
    else:
        for each in found:
            say(_told(each))
    if not all(each.fits for each in found):
        raise typer.Exit(1)


def _misfits(checked: Iterable[Check]) -> list[Check]:
    """Those that do not fit; the others are only counted, and there may be any number of them."""
    misfits: list[Check] = []
    count = 0
    for each in checked:
        count += 1
        if not each.fits:
            misfits.append(each)
    note(f"runs checked: {count}, that do not fit: {len(misfits)}")
    return misfits


def _told(checked: Check) -> str:
    error = checked.error
    return one_line(
        f"{checked.run_id}  {checked.agent}  {checked.status}  "
        + ("fits" if error is None else f"{error.type}: {error.message}")
    )
