"""Development: servers, worker and the reload of the user's code, in one command.

Imports nothing of the user's: the worker child does, so that a change needs no more than a new child.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from adjourn.schemas.errors import ConfigurationError
from adjourn.store.migrations import upgrade
from adjourn.worker.config.deployment import at_servers
from adjourn.worker.config.settings import Settings, load_settings
from adjourn.worker.dev.processes import WorkerChild, ended_in_order
from adjourn.worker.embedded.servers import DATA_DIR_VARIABLE, EmbeddedServers, default_data_dir, running_servers
from adjourn.worker.process.assembly import APP_VARIABLE

LOOK_MS: Final = 1_000
"""How often it is looked whether the worker has ended by itself."""

Say = Callable[[str], None]


def run(app: str | None, data_dir: Path | None, watch: Sequence[Path], say: Say) -> None:
    """Run until Ctrl-C or SIGTERM. Raises `ConfigurationError`."""
    settings = load_settings(app=app)
    if settings.app is None:
        raise ConfigurationError(APP_VARIABLE, "is not set", "set it to your App as module:attribute, or give --app")
    changes = _changes(watch)
    joins = running_servers(data_dir) is not None
    with ended_in_order(), EmbeddedServers(data_dir) as servers:
        upgrade(servers.database_url)
        settings = at_servers(settings, servers.database_url, servers.redis_url)
        if settings.build is None:
            # One name for every reload: code that was undone would else be an older build for as long as that is live.
            settings = settings.model_copy(update={"build": f"dev-{os.getpid()}"})
        for line in _greeting(settings, data_dir, servers):
            say(line)
        if joins:
            say("These servers ran already, and the worker beside them takes runs too. This worker is the newer build:")
            say("the other one leaves runs that need newer code to it, and it fails runs of blocks that it lacks.")
        try:
            _reloading(settings, changes, say)
        except KeyboardInterrupt:
            say("stopping")


def _reloading(settings: Settings, changes: Iterator[Sequence[str]], say: Say) -> None:
    """Keep one worker running the newest code."""
    worker = WorkerChild(settings)
    told = False
    try:
        for changed in changes:
            if changed:
                say(f"{', '.join(changed)} changed: the worker starts again")
                worker.stop()
                worker, told = WorkerChild(settings), False
            elif worker.exit_code is not None and not told:
                say(f"the worker ended with exit code {worker.exit_code}; it starts again when a file changes")
                told = True
    finally:
        worker.stop()


def _changes(paths: Sequence[Path]) -> Iterator[Sequence[str]]:
    """Names of Python files that changed, and now and then nothing."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise ConfigurationError(
            "adjourn dev", "watchfiles is not installed", "pip install 'adjourn[embedded]', or run `adjourn worker`"
        ) from None
    changes = watch(*paths, watch_filter=PythonFilter(), rust_timeout=LOOK_MS, yield_on_timeout=True)
    return (sorted({Path(path).name for _, path in batch}) for batch in changes)


def _greeting(settings: Settings, data_dir: Path | None, servers: EmbeddedServers) -> Iterator[str]:
    yield f"PostgreSQL and Valkey run, with their data in {servers.data_dir}"
    yield "From another terminal, while this runs:"
    if data_dir is not None and servers.data_dir != default_data_dir().absolute():
        yield f"  export {DATA_DIR_VARIABLE}={shlex.quote(str(servers.data_dir))}"
    yield '  adjourn run AGENT "some text" --wait'
    yield "  adjourn pending"
    yield "  adjourn answer ACTION '{…}'"
    yield "For other programs:"
    yield f"  export ADJOURN_DATABASE_URL={shlex.quote(servers.database_url)}"
    yield f"  export ADJOURN_REDIS_URL={shlex.quote(servers.redis_url)}"
    yield f"The worker runs {settings.app}. Ctrl-C stops everything."
