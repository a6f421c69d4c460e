"""Commands about pending actions: list them, answer, decline, give up."""

from __future__ import annotations

from typing import Annotated

import typer

from adjourn.schemas.answers import Receipt
from adjourn.schemas.errors import NotFoundError
from adjourn.worker.cli.describe import described
from adjourn.worker.cli.options import JsonOption, LimitOption, client, parsed
from adjourn.worker.cli.output import as_json, emit_json, emit_rows, note, one_line, say

ActionArgument = Annotated[str, typer.Argument(metavar="ACTION", help="The action's id, or its request id.")]


def pending(
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Only of this thread.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Only of this run.")] = None,
    limit: LimitOption = 100,
    json: JsonOption = False,
) -> None:
    """List what waits for an answer, oldest first.

    Without a terminal: id, name, deadline if there is one, and prompt or data, separated by tabs.
    Everything else, such as the schema of the answer, is in --json.

    Example: adjourn pending --json
    """
    with client() as made:
        listed = made.pending(thread, run, limit=limit)
    if json:
        emit_json(listed)
        return
    rows = [
        (
            action.id,
            action.name,
            action.expires_at.isoformat(timespec="seconds") if action.expires_at else "",
            action.prompt or as_json(action.input),
        )
        for action in listed
    ]
    emit_rows(("action", "name", "until", "asks"), rows, "nothing waits for an answer")


def answer(
    action: ActionArgument,
    data: Annotated[str, typer.Argument(help="The answer as JSON; `-` reads it from standard input.")],
    answer_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of your own: an answer sent twice is then taken once.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why: kept beside the answer.")] = None,
    json: JsonOption = False,
) -> None:
    """Answer a pending action. Exits with 1 if the answer is refused; the action then still waits.

    Example: adjourn answer act_06a… '{"approved": true}'
    """
    with client() as made:
        policy = made.settings.policy
        value = parsed(data, policy.max_answer_bytes, policy.max_answer_depth)
        _show(made.submit(action, value, reason=reason, answer_id=answer_id, check=False), json)


def cancel(
    target: Annotated[str, typer.Argument(metavar="ACTION|RUN", help="The id of an action or of a run.")],
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    json: JsonOption = False,
) -> None:
    """Decline a pending action, or cancel a whole run with everything that it waits for.

    Example: adjourn cancel act_06a… --reason "not this quarter"
    """
    with client() as made:
        try:
            made.run(target)
        except NotFoundError:
            _show(made.cancel(target, reason=reason, check=False), json)
            return
        ended = made.cancel_run(target, reason)
    if json:
        emit_json(ended)
    else:
        say(f"{ended.id} is {ended.status}")


def fail(
    action: ActionArgument,
    message: Annotated[str, typer.Argument(help="Why it cannot be answered.")],
    json: JsonOption = False,
) -> None:
    """Say that a pending action cannot be answered.

    Example: adjourn fail act_06a… "the file is lost"
    """
    with client() as made:
        _show(made.fail(action, message=message, check=False), json)


def action(action: ActionArgument, json: JsonOption = False) -> None:
    """Show an action, pending or ended: what was asked, and what was answered, by whom and by which channel.

    With --json everything, the schemas of both included.

    Example: adjourn action act_06a…
    """
    with client() as made:
        shown = made.action(action)
    if json:
        emit_json(shown)
        return
    for line in described(shown):
        say(line)


def _show(receipt: Receipt, json: bool) -> None:
    """Print what became of an answer, and exit with 1 if it was refused."""
    if json:
        emit_json(receipt)
    elif receipt.ok:
        say(one_line(f"{receipt.status}: {receipt.action_id}"))
    else:
        note(one_line(f"Error: {receipt.status}: {receipt.detail}"))
    if not receipt.ok:
        raise typer.Exit(1)
