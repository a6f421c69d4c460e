"""The crash sweep, as far as there is time for it in every run of the tests.

Every scenario is played undisturbed and with a sample of its crashes, another one for each seed; the
writes, answers and acknowledgements of a whole cycle are always tried on both sides. All of it,
which takes minutes, is `python -m tests.crash --all`.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence

import pytest

from tests.crash.mutation_trials import try_mutation
from tests.crash.scenarios import BY_NAME, SCENARIOS, Scenario
from tests.crash.stale import sent_when_stale
from tests.crash.sweep import Bench, Task, tasks_of
from tests.crash.trials import Outcome

SEED = os.environ.get("ADJOURN_CRASH_SEED", "1")
"""Which crashes are tried. Always the same unless one says otherwise, so that a change is judged and not the day."""
SAMPLE = 3
"""Crashes of each scenario. With sixty scenarios that is as many as there is time for in every run."""
ALWAYS = re.compile(r"sql:writes\.|sql:actions\.ANSWER|ack:")
WHOLE_CYCLE = BY_NAME["two tools, one gate"]
ON_RABBITMQ = ("three gates", "early answer", "kept answer", "enqueue", "duplicate answer", "suspect run", "shutdown")
MUTATIONS = ("token", "counter", "compare-and-set", "write order", "sweep")

pytestmark = pytest.mark.timeout(600)


def survives(bench: Bench, scenario: Scenario, tasks: Sequence[Task]) -> list[Outcome]:
    outcomes = [bench.run(task) for task in tasks]
    found = [outcome for outcome in outcomes if outcome.findings]
    assert not found, "\n".join([f"with ADJOURN_CRASH_SEED={SEED}:", *map(str, found)])
    return outcomes


def crashes(bench: Bench, scenario: Scenario) -> list[Task]:
    """Play the scenario undisturbed, which has to go well, and return what can be tried of it."""
    recorded = bench.run(Task(scenario))
    assert not recorded.findings, str(recorded)
    assert recorded.points
    return tasks_of(recorded, scenario)


def sample(tasks: Sequence[Task]) -> list[Task]:
    return random.Random(f"{SEED} {tasks[0].scenario}").sample(tasks, min(SAMPLE, len(tasks)))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_survives_crashes(on_redis: Bench, scenario: Scenario) -> None:
    survives(on_redis, scenario, sample(crashes(on_redis, scenario)))


@pytest.mark.rabbitmq
@pytest.mark.parametrize("name", ON_RABBITMQ)
def test_survives_crashes_over_rabbitmq(on_rabbitmq: Bench, name: str) -> None:
    scenario = BY_NAME[name]
    survives(on_rabbitmq, scenario, sample(crashes(on_rabbitmq, scenario)))


def test_survives_a_crash_at_each_write_answer_and_acknowledgement(on_redis: Bench) -> None:
    tasks = [task for task in crashes(on_redis, WHOLE_CYCLE) if task.kill and ALWAYS.search(task.kill[1])]
    survives(on_redis, WHOLE_CYCLE, tasks)


@pytest.mark.rabbitmq
def test_survives_a_crash_at_each_write_answer_and_acknowledgement_over_rabbitmq(on_rabbitmq: Bench) -> None:
    tasks = [task for task in crashes(on_rabbitmq, WHOLE_CYCLE) if task.kill and ALWAYS.search(task.kill[1])]
    survives(on_rabbitmq, WHOLE_CYCLE, tasks)


def test_a_worker_that_was_stopped_past_its_lease_changes_nothing(on_redis: Bench) -> None:
    recorded = on_redis.run(Task(WHOLE_CYCLE))
    stopped = tasks_of(recorded, WHOLE_CYCLE, freeze=True)
    writes = [task for task in stopped if task.kill and task.kill[0] == "before" and "sql:writes." in task.kill[1]]
    assert writes
    outcomes = survives(on_redis, WHOLE_CYCLE, writes)
    sent = sent_when_stale(list(zip(writes, outcomes, strict=True)))
    assert sum(count for name, count in sent.items() if name.startswith("writes.")) >= len(writes), "none was stale"


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_sweep_notices_a_safeguard_that_is_missing(on_redis: Bench, name: str) -> None:
    shown = try_mutation(on_redis, name)
    assert shown.found, f"{shown.sound}\n{shown.broken}"
