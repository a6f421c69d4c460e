"""The command that looks a deployment over."""

from __future__ import annotations

import typer

from adjourn.worker.cli.options import AppOption, JsonOption
from adjourn.worker.cli.output import emit_json, one_line, say
from adjourn.worker.doctor import Finding, examine


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
