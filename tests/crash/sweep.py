"""The exhaustive sweep: each scenario once undisturbed, and then once before and once after each of its points.

The points are recorded anew every time, so a change that adds one has it tried without further ado.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

from adjourn.store.scratch import ScratchDatabases
from adjourn.worker.embedded.servers import EmbeddedServers
from tests.crash.forkserver import ForkServer
from tests.crash.lanes import Lane
from tests.crash.points import SIDES, Side
from tests.crash.scenarios import Scenario
from tests.crash.trials import Outcome, run_trial, unplayed
from tests.crash.workers import PATIENCE_SECONDS
from tests.servers import RabbitNode, find_rabbitmq

Broker = Literal["redis", "rabbitmq"]

MOST_CONNECTIONS: Final = 400
ATTEMPTS: Final = 4
"""To pass a point that was recorded. One that is not passed in any of them is a finding of the harness."""


class Task(NamedTuple):
    """One trial to be run."""

    scenario: Scenario
    kill: tuple[Side, str] | None = None
    freeze: bool = False
    mutation: str | None = None
    patience: float = PATIENCE_SECONDS


class Bench:
    """Lanes on which trials run side by side."""

    def __init__(self, server: ForkServer, folder: Path, lanes: Sequence[Lane]) -> None:
        self._server, self._folder, self._count = server, folder, len(lanes)
        self._lanes: SimpleQueue[Lane] = SimpleQueue()
        for lane in lanes:
            self._lanes.put(lane)

    def run(self, task: Task) -> Outcome:
        """Run one trial, as soon as there is a lane; again, if threads met otherwise than when it was recorded.

        A trial that cannot be played to its end is a finding like any other, and not the end of the sweep.
        """
        for _ in range(ATTEMPTS):
            try:
                outcome = self._run(task)
            except Exception as error:
                return unplayed(task.scenario, error)
            if not outcome.missed or outcome.found_besides:
                break
        return outcome

    def _run(self, task: Task) -> Outcome:
        lane = self._lanes.get()
        try:
            return run_trial(
                self._server,
                lane,
                self._folder,
                task.scenario,
                kill=task.kill,
                freeze=task.freeze,
                mutation=task.mutation,
                patience=task.patience,
            )
        finally:
            self._lanes.put(lane)

    def run_all(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Run trials side by side; gives each outcome when it is there."""
        with ThreadPoolExecutor(self._count) as pool:
            futures: dict[Future[Outcome], Task] = {pool.submit(self.run, task): task for task in tasks}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


@contextmanager
def bench(broker: Broker, lanes: int) -> Iterator[Bench]:
    """A bench with servers of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="adjourn-crash-", ignore_cleanup_errors=True)))
        folder.chmod(0o711)  # servers started by root are somebody else, who has to pass through
        servers = stack.enter_context(
            EmbeddedServers(folder / "servers", durable=False, max_connections=MOST_CONNECTIONS)
        )
        databases = ScratchDatabases(servers.database_url)
        stack.callback(databases.close)
        node = _rabbit(stack, folder) if broker == "rabbitmq" else None
        made = []
        for number in range(lanes):
            database_url = stack.enter_context(databases.fresh())
            vhost = stack.enter_context(node.fresh_vhost()) if node else None
            lane = Lane(database_url, f"{servers.redis_url.removesuffix('/0')}/{number}", vhost)
            stack.callback(lane.close)
            made.append(lane)
        yield Bench(stack.enter_context(ForkServer(folder)), folder, made)


def _rabbit(stack: ExitStack, folder: Path) -> RabbitNode:
    program = find_rabbitmq()
    if program is None:
        raise SystemExit("rabbitmq-server is not found")
    node = RabbitNode(program, folder / "rabbitmq")
    stack.callback(node.stop)
    node.start()
    return node


def tasks_of(recorded: Outcome, scenario: Scenario, *, freeze: bool = False) -> list[Task]:
    """What is to be tried of a scenario whose undisturbed trial this was."""
    points = dict.fromkeys(recorded.points)
    if freeze:
        points = {point: None for point in points if point.startswith("worker.")}
    return [Task(scenario, (side, point), freeze) for point in points for side in SIDES]


def record(
    made: Bench, scenarios: Sequence[Scenario], told: Callable[[Outcome], None] = lambda _: None
) -> dict[str, Outcome]:
    """Play each scenario undisturbed."""
    recorded: dict[str, Outcome] = {}
    for task, outcome in made.run_all(Task(scenario) for scenario in scenarios):
        recorded[task.scenario.name] = outcome
        told(outcome)
    return recorded
