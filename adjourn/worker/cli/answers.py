"""Commands about pending actions: list them, answer, decline, give up."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

import typer

from adjourn.schemas.errors import NotFoundError
from adjourn.schemas.records.answers import Receipt
from adjourn.worker.cli.options import JsonOption, LimitOption, client, parsed, refuse_without
from adjourn.worker.cli.output import emit_json, emit_rows, note, say
from adjourn.worker.text.action import described
from adjourn.worker.text.lines import as_json, one_line

MOST_HOURS: Final = 10**7
"""More than any credential may last, and no more than a timedelta takes."""
AsOption = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who answers, where the action asks.")]
AnswerIdOption = Annotated[
    str | None, typer.Option(metavar="ID", help="Of your own: an answer sent twice is then taken once.")
]
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
    answer_id: AnswerIdOption = None,
    reason: Annotated[str | None, typer.Option(help="Why: kept beside the answer.")] = None,
    identity: AsOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a pending action. Exits with 1 if the answer is refused; the action then still waits.

    Example: adjourn answer act_06a… '{"approved": true}' --as ann
    """
    with client() as made:
        tuning = made.settings.tuning
        value = parsed(data, tuning.max_answer_bytes, tuning.max_answer_depth)
        said = made.submit(action, value, reason=reason, answer_id=answer_id, identity=identity, raise_on_refusal=False)
        _show(said, json)


def cancel(
    target: Annotated[str, typer.Argument(metavar="ACTION|RUN", help="The id of an action or of a run.")],
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    answer_id: AnswerIdOption = None,
    identity: AsOption = None,
    json: JsonOption = False,
) -> None:
    """Decline a pending action, or cancel a whole run with everything that it waits for.

    Example: adjourn cancel act_06a… --reason "not this quarter"
    """
    with client() as made:
        try:
            made.get_run(target)
        except NotFoundError:
            said = made.cancel(target, reason=reason, answer_id=answer_id, identity=identity, raise_on_refusal=False)
            _show(said, json)
            return
        refuse_without("--answer-id", answer_id, "an ACTION", has=False)
        ended = made.cancel_run(target, reason, identity=identity)
    if json:
        emit_json(ended)
    else:
        say(f"{ended.id} is {ended.status}")


def fail(
    action: ActionArgument,
    message: Annotated[str, typer.Argument(help="Why it cannot be answered.")],
    answer_id: AnswerIdOption = None,
    identity: AsOption = None,
    json: JsonOption = False,
) -> None:
    """Say that a pending action cannot be answered.

    Example: adjourn fail act_06a… "the file is lost"
    """
    with client() as made:
        said = made.fail(action, message=message, answer_id=answer_id, identity=identity, raise_on_refusal=False)
        _show(said, json)


def credential(
    identity: Annotated[str, typer.Argument(metavar="NAME", help="Whom it proves.")],
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="The one action that it is for; without it, all of them.")
    ] = None,
    hours: Annotated[float | None, typer.Option(min=0, help="It ends after this long; without it, never.")] = None,
    json: JsonOption = False,
) -> None:
    """Print a credential: who sends it with an answer over the queue, answers as NAME. Keep it like a password.

    Example: adjourn credential ann --action act_06a… --hours 24
    """
    with client() as made:
        expires_in = None if hours is None else timedelta(hours=min(hours, MOST_HOURS))
        issued = made.issue_credential(identity, action, expires_in=expires_in)
    if json:
        emit_json({"identity": identity, "action_id": action, "credential": issued})
    else:
        say(issued)


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
        say(one_line(f"{receipt.status}: {receipt.action_id}" + (f" ({receipt.detail})" if receipt.detail else "")))
    else:
        note(one_line(f"Error: {receipt.status}: {receipt.detail}"))
    if not receipt.ok:
        raise typer.Exit(1)
