"""The plays of scenarios about damaged rows: each harms its own run only."""

from __future__ import annotations

from tests.crash.trial import LATE, Trial


def damaged_item(t: Trial) -> None:
    """An item of a child is damaged while it waits: the child fails, its parent reads so, and another run goes on."""
    run = t.start("boss")
    (child,) = t.children(run, ends="failed")
    (action,) = t.parked(child)
    with t.lane.damaged("items", "body", f"run_id = '{child}' and seq = 2"):
        t.answer(action.id)
        t.ended(child, run)
    t.ended(t.start("plain"))


def damaged_action(t: Trial) -> None:
    """A damaged action fails its run at the answer, which is refused, and harms no deadline of another run."""
    run = t.start("gated", ends="failed")
    (action,) = t.parked(run)
    other = t.start("hurry")
    t.parked(other)
    t.lane.redis.delete(f"adjourn:parking:{action.id}")
    with t.lane.damaged("actions", "asked", f"id = '{action.id}'"):
        t.answer(action.id, wanted=False)
        t.ended(run)
        t.lane.move_clock(LATE)
        t.sweep()
        t.ended(other)


def damaged_parent(t: Trial) -> None:
    """The row of a parent contradicts its items: it fails when its child has ended, and another tree goes on."""
    run, other = t.start("boss", ends="failed"), t.start("boss")
    (child,), (sound,) = t.children(run), t.children(other)
    (action,), (there,) = t.parked(child), t.parked(sound)
    t.lane.contradict(run)
    t.answer(action.id)
    t.answer(there.id)
    t.ended(child, run, sound, other)


def damaged_child(t: Trial) -> None:
    """The row of a child contradicts its items: it fails at its answer, and its parent reads so."""
    run = t.start("boss")
    (child,) = t.children(run, ends="failed")
    (action,) = t.parked(child)
    t.lane.contradict(child)
    t.answer(action.id, wanted=False)
    t.ended(child, run)


def damaged_deadline(t: Trial) -> None:
    """A run that cannot record that its deadline has passed fails, and another run hears of its own."""
    run, other = t.start("hurry", ends="failed"), t.start("hurry")
    t.parked(run)
    t.parked(other)
    t.lane.contradict(run)
    t.lane.move_clock(LATE)
    t.sweep()
    t.ended(run, other)


def damaged_deadline_at_an_answer(t: Trial) -> None:
    """The same, where a late answer finds it and not the sweep."""
    run = t.start("hurry", ends="failed")
    (action,) = t.parked(run)
    t.lane.contradict(run)
    t.lane.move_clock(LATE)
    t.answer(action.id, wanted=False)
    t.ended(run)


def lost_wait(t: Trial) -> None:
    """The wait of a parked run is lost: the sweep finds the run, which fails, and another run is left alone."""
    run, other = t.start("gated", ends="failed"), t.start("gated")
    t.parked(run)
    (action,) = t.parked(other)
    t.lane.lose_waits(run)
    t.sweep()
    t.ended(run)
    t.answer(action.id)
    t.ended(other)
