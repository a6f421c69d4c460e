"""Commands about runs: start one, let one go on, list and fork threads, show what happened."""

from __future__ import annotations

from typing import Annotated

import typer

from adjourn.schemas.errors import WaitTimeoutError
from adjourn.schemas.records.runs import Run, WhenBusy
from adjourn.worker.cli.options import (
    AppOption,
    JsonOption,
    LimitOption,
    TimeoutOption,
    client,
    parsed,
    refuse_without,
)
from adjourn.worker.cli.output import emit_json, emit_rows, progress, say
from adjourn.worker.client.client import Client
from adjourn.worker.text.timeline import following, headline, result, timeline, waiting

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until there is something to answer or it has ended.")]


def run(
    block: Annotated[str, typer.Argument(help="The name of an agent, or of another block.")],
    text: Annotated[str | None, typer.Argument(help="What to say to it.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Instead of TEXT, for a block that takes more; `-` reads standard input."),
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this thread.")] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="An id of your own for the run: the same command again starts no other."),
    ] = None,
    when_busy: Annotated[WhenBusy, typer.Option(help="If the thread has a run that has not ended.")] = "refuse",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> None:
    """Start a run. With --wait, exits with 1 if it failed or was cancelled, and --json has what waits as `pending`.

    Example: adjourn run reporter "Send the Q3 report" --wait

    Example: adjourn run invoices --data '{"customer": "ACME", "due": "2026-12-01"}'
    """
    if (text is None) == (data is None):
        raise typer.BadParameter("give either TEXT or --data", param_hint="TEXT")
    refuse_without("--timeout", timeout, "--wait", wait)
    with client(app) as made:
        tuning = made.settings.tuning
        said = text if data is None else parsed(data, tuning.max_message_bytes, tuning.max_answer_depth)
        started = made.start(block, said, thread_id=thread, run_id=run_id, when_busy=when_busy)
        _tell(made, _watched(made, started.id, timeout) if wait else started.state(), json, waited=wait)


def retry(
    run: Annotated[str, typer.Argument(help="The run's id.")],
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Let a failed run go on after a fix: nothing that it has recorded is done again, accepted answers are used.

    For a run that failed because code no longer fitted it, at a limit, by its model or by killing its workers.

    Example: adjourn retry run_06a… --wait
    """
    refuse_without("--timeout", timeout, "--wait", wait)
    with client() as made:
        retried = made.retry(run)
        _tell(made, _watched(made, retried.id, timeout) if wait else retried, json, waited=wait)


def _tell(made: Client, run: Run, json: bool, *, waited: bool) -> None:
    """How a run stands. Exits with 1 if it failed or was cancelled."""
    if json:
        emit_json({**dict(run), "pending": made.pending(run_id=run.id)} if waited else run)
    else:
        say(headline(run))
        for line in result(run):
            say(line)
        for action in made.pending(run_id=run.id):
            say(waiting(action))
    if run.status in ("failed", "cancelled"):
        raise typer.Exit(1)


def _watched(made: Client, run_id: str, timeout: float | None) -> Run:
    with progress() as show:
        return made.wait(run_id, timeout=timeout, on_change=lambda run: show(headline(run)))


def threads(limit: LimitOption = 100, json: JsonOption = False) -> None:
    """List threads, newest first.

    Without a terminal: thread, then status, agent, id and last change of its last run, separated by tabs.

    Example: adjourn threads --limit 10
    """
    with client() as made:
        listed = made.threads(limit)
    if json:
        emit_json([each._asdict() for each in listed])
        return
    rows = [
        (each.thread_id, each.status, each.agent, each.run_id, each.updated_at.isoformat(timespec="seconds"))
        for each in listed
    ]
    emit_rows(
        ("thread", "status", "agent", "last run", "changed"), rows, "no threads yet; start one with `adjourn run`"
    )


def fork(
    thread: Annotated[str, typer.Argument(help="The thread's id.")],
    run: Annotated[str | None, typer.Option(metavar="ID", help="Up to this run; else all that have ended.")] = None,
    item: Annotated[int | None, typer.Option(metavar="SEQ", help="Up to this item of it; else all it has.")] = None,
    new: Annotated[str | None, typer.Option("--as", metavar="ID", help="The id of the new thread.")] = None,
) -> None:
    """Copy a conversation, up to some item, to a new thread that can go on from there. Prints the new thread's id.

    Example: adjourn run reporter "And in short?" --thread $(adjourn fork thr_06a… --run run_06a… --item 4)
    """
    with client() as made:
        say(made.fork(thread, run, item, new_thread_id=new))


def show(
    run: Annotated[str, typer.Argument(help="The run's id.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended, parked or not.")] = False,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Show what happened in a run, item by item, and what it waits for.

    With --follow, --json gives one event per line, pieces of responses included, and the exit code
    is 1 if the run failed, was cancelled or has not ended in time.

    Example: adjourn show run_06a… --follow
    """
    refuse_without("--timeout", timeout, "--follow", follow)
    with client() as made:
        if follow:
            _follow(made, run, timeout, json)
            return
        shown = made.get_run(run)
        items = made.items(run)
        pending = made.pending(run_id=run)
    if json:
        emit_json({"run": shown, "items": items, "pending": pending})
        return
    say(headline(shown))
    for line in timeline(items, pending):
        say(line)
    for line in result(shown):
        say(line)


def _follow(made: Client, run: str, timeout: float | None, json: bool) -> None:
    events = made.follow(run, timeout=timeout)
    for line in (event.model_dump_json() for event in events) if json else following(events):
        say(line)
    left = made.get_run(run)
    if not left.ended:
        raise WaitTimeoutError(f"the end of run {run} (now {left.status})", timeout or 0)
    if left.status != "completed":
        raise typer.Exit(1)
