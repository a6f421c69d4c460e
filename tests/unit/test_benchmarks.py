"""The parts of the benchmark that think: its statistics, its reading of the server log, its choice of lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.cycle import Measured, Results, report
from benchmarks.figures import Spread, percentile, ratios, short, table
from benchmarks.lanes import Command, Event, Lane, StalledError
from benchmarks.servers import Servers, statements


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(median=3.0, low=1.0, high=5.0, repetitions=3)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1)) == (50, 99, 100)
    assert percentile([7.0], 0.99) == 7


@pytest.mark.parametrize("of_none", [lambda: Spread.of([]), lambda: percentile([], 0.5)])
def test_nothing_has_no_statistics(of_none: Any) -> None:
    with pytest.raises(ValueError, match="no measurements"):
        of_none()


def test_ratios_are_taken_within_each_repetition() -> None:
    # The machine was ten times slower in the second repetition: the ratio does not see it.
    assert ratios([80.0, 8.0, 90.0], [100.0, 10.0, 100.0]).median == 0.8


def test_ratios_refuse_repetitions_without_a_partner() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.7449, "0.745"), (12.34, "12.3"), (1234.5, "1234")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert table(("peer", "n"), [("a", "100"), ("longer", "1")]).splitlines() == [
        "peer      n",
        "------  ---",
        "a       100",
        "longer    1",
    ]


def test_statements_are_read_from_the_server_log() -> None:
    log = (
        "ours\tLOG:  execute _pg3_0: \n\twith run as (\n\t    update runs\n\t) select 1\n"
        "ours\tDETAIL:  Parameters: $1 = 'x'\n"
        "other\tLOG:  statement: select 2\n"
        "ours\tLOG:  statement: BEGIN\n"
        "LOG:  received SIGHUP, reloading configuration files\n"
    )
    assert list(statements(log, "ours")) == ["with run as ( update runs ) select 1", "BEGIN"]


class TwoSteps(Lane):
    """A peer in memory: what is begun parks, what is answered ends."""

    peer, hosting, database = "steps", "memory", "none"

    def __init__(self) -> None:
        super().__init__(cast(Servers, None), Path())
        self.news: deque[Event] = deque()
        self.begun = self.answered = self.most = 0

    def prepare(self) -> Sequence[Command]:
        return []

    def begin(self) -> None:
        self.begun += 1
        self.most = max(self.most, self.begun - self.answered)
        self.news.append(Event(parked=True, id=str(self.begun)))

    def answer(self, parked: str) -> None:
        self.answered += 1
        self.news.append(Event(parked=False, id=parked))

    def hear(self, seconds: float) -> Sequence[Event]:
        return [self.news.popleft()] if self.news else []

    def latencies(self) -> list[float]:
        return [0.0] * self.answered

    def close(self) -> None:
        pass


def test_a_closed_loop_keeps_so_many_in_flight_and_drains() -> None:
    lane = TwoSteps()
    lane.drive_cycles(40, in_flight=8)
    assert (lane.begun, lane.answered, lane.most) == (40, 40, 8)


def test_reentries_are_answered_one_by_one() -> None:
    lane = TwoSteps()
    assert len(lane.reentries(10, in_flight=4, pause_seconds=0)) == 10
    assert lane.begun == 10


def test_a_lane_without_news_has_stalled() -> None:
    lane = TwoSteps()
    lane.begin = lambda: None  # type: ignore[method-assign]
    with pytest.raises(StalledError, match="steps, memory: nothing happened"):
        lane.drive_cycles(1)


def test_the_report_says_which_ratio_missed_its_target() -> None:
    def measured(peer: str, cycles: float) -> Measured:
        lane = TwoSteps()
        lane.peer = peer
        return Measured(lane, cycles=[cycles], reentries=[0.002, 0.003])

    machine = {"cores": 2, "python": "3", "postgres_server_version": "18"}
    machine |= {"postgres_fsync": "on", "postgres_synchronous_commit": "on"}
    lanes = [measured("floor", 90), measured("floor", 100), measured("langgraph", 40), measured("adjourn", 60)]
    results = Results(machine, lanes, ["a peer could not be installed: no network"])
    lines = report(results).splitlines()
    assert next(line for line in lines if line.startswith("adjourn, memory / floor")).endswith(
        "0.600 [0.600..0.600]  >= 0.7  NOT MET"
    )
    assert next(line for line in lines if line.startswith("adjourn, memory / langgraph")).endswith(">= 2  NOT MET")
    assert "a peer could not be installed: no network" in lines
    over_floor, over_langgraph = results.as_json()["adjourn_over"]
    assert (over_floor["peer"], over_floor["median"]) == ("floor", 0.6)
    assert (over_langgraph["peer"], over_langgraph["median"]) == ("langgraph", 1.5)
