"""The plays of scenarios about agents that start agents."""

from __future__ import annotations

from tests.crash.trial import Trial


def child_gated(t: Trial) -> None:
    run = t.start("boss")
    (child,) = t.children(run)
    t.answer(t.parked(child)[0].id)
    t.ended(child, run)


def two_children(t: Trial) -> None:
    """Answered in the other order than they were started in."""
    run = t.start("boss_of_two")
    children = t.children(run, 2)
    for child in reversed(children):
        t.answer(t.parked(child)[0].id)
    t.ended(*children, run)


def quick_child(t: Trial) -> None:
    """It may end while its parent is about to park."""
    run = t.start("boss_of_a_quick_one")
    t.children(run)
    t.ended(run)


def grandchild_gated(t: Trial) -> None:
    run = t.start("boss_of_a_boss")
    (middle,) = t.children(run)
    (child,) = t.children(middle)
    t.answer(t.parked(child)[0].id)
    t.ended(child, middle, run)


def cancel_down_the_tree(t: Trial) -> None:
    run = t.start("boss_of_a_boss", ends="cancelled")
    (middle,) = t.children(run, ends="cancelled")
    (child,) = t.children(middle, ends="cancelled")
    t.parked(child)
    t.client("cancel_run", run_id=run)
    t.ended(run, middle, child)
