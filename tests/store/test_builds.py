"""The order of builds, and how long they are live."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from adjourn.store.postgres.runs import builds
from adjourn.store.scratch import move_clock
from tests.store.steps import Steps

TTL = 60.0


def test_a_build_that_comes_up_later_is_newer(steps: Steps) -> None:
    first, second = builds.register(steps.db, "a"), builds.register(steps.db, "b")
    assert first < second
    assert builds.is_outdated(steps.db, first)
    assert not builds.is_outdated(steps.db, second)


def test_a_restart_of_a_live_build_does_not_make_it_newer(steps: Steps) -> None:
    first, second = builds.register(steps.db, "a"), builds.register(steps.db, "b")
    move_clock(steps.db, TTL - 1)
    builds.renew(steps.db, "b", second)
    assert builds.register(steps.db, "a") == first
    assert builds.is_outdated(steps.db, first)


def test_a_build_that_is_gone_and_comes_again_is_the_newest(steps: Steps) -> None:
    first, second = builds.register(steps.db, "a"), builds.register(steps.db, "b")
    move_clock(steps.db, TTL + 1)
    builds.renew(steps.db, "b", second)
    again = builds.register(steps.db, "a")
    assert again > second > first
    assert builds.renew(steps.db, "a", first) == again, "a process that was cut off hears of it"


def test_a_process_that_was_cut_off_comes_back_at_its_old_place(steps: Steps) -> None:
    first, second = builds.register(steps.db, "a"), builds.register(steps.db, "b")
    move_clock(steps.db, 3 * 86_400)
    builds.register(steps.db, "c")
    assert steps.db.execute(sa.text("select id from adjourn.builds"), {})[0].id == "c", "the others are forgotten"
    assert builds.renew(steps.db, "a", first) == first
    assert builds.is_outdated(steps.db, first)
    assert builds.is_outdated(steps.db, second)


def test_a_build_is_not_live_when_nothing_was_seen_of_it_for_long(steps: Steps) -> None:
    first, _ = builds.register(steps.db, "a"), builds.register(steps.db, "b")
    move_clock(steps.db, TTL + 1)
    assert not builds.is_outdated(steps.db, first)


def test_processes_of_one_build_that_come_up_at_once_have_one_place(steps: Steps) -> None:
    with ThreadPoolExecutor(8) as threads:
        places = set(threads.map(lambda _: builds.register(steps.db, "a"), range(40)))
    assert len(places) == 1


def test_a_build_leaves_nothing_when_no_newer_one_is_live(steps: Steps) -> None:
    place = builds.register(steps.db, "a")
    claim = steps.claimed()
    assert builds.leave(steps.db, claim.run.id, claim.token, place) is None
    newer = builds.register(steps.db, "b")
    assert builds.leave(steps.db, claim.run.id, "another token", place) is None
    wakeup = builds.leave(steps.db, claim.run.id, claim.token, place)
    assert wakeup is not None
    assert (wakeup.run_id, wakeup.due) == (claim.run.id, "reentry")
    assert builds.leave(steps.db, claim.run.id, claim.token, place) is None, "sent again it finds no claim"
    assert not builds.may_take(steps.db, claim.run.id, place)
    assert builds.may_take(steps.db, claim.run.id, newer)
    assert builds.may_take(steps.db, claim.run.id, None)
    move_clock(steps.db, TTL + 1)
    assert builds.may_take(steps.db, claim.run.id, place), "nobody newer is live: nothing has to be undone for it"
