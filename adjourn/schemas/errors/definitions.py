"""What a developer defined or set up, and what a worker runs on."""

from __future__ import annotations

from collections.abc import Sequence

from adjourn.schemas.errors.base import AdjournError


class DefinitionError(AdjournError, ValueError):
    """A tool, wait point, agent or app is defined in a way that cannot work."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem}; {remedy}")
        self.where = where
        self.problem = problem
        self.remedy = remedy


class ConfigurationError(AdjournError, ValueError):
    """A setting is missing, wrong, or points at something that cannot be reached."""

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"{setting}: {problem}; {remedy}")
        self.setting = setting
        self.problem = problem
        self.remedy = remedy


class StoreUnavailableError(AdjournError, ConnectionError):
    """Postgres or Redis could not be reached, or did not answer in time. Nothing is known to have been done.

    `refused` says that it was reached, and ended this one statement with an error.
    """

    def __init__(self, store: str, problem: str, *, refused: bool = False) -> None:
        super().__init__(f"{store} is not available: {problem}; check that it runs and its URL is right, and retry")
        self.store = store
        self.problem = problem
        self.refused = refused


class WorkerEndedError(AdjournError, RuntimeError):
    """A worker process that was started here ended by itself. `log` holds the last lines that it wrote."""

    def __init__(self, pid: int, exit_code: int, log: Sequence[str]) -> None:
        said = f", saying: {' / '.join(log)}" if log else ""
        super().__init__(f"worker {pid} ended with exit code {exit_code}{said}")
        self.pid = pid
        self.exit_code = exit_code
        self.log = tuple(log)
