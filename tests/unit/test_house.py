"""What the files around the code promise: containers, links, licences, and that CI runs what users run."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

import adjourn
from adjourn.schemas.internal.tuning import Tuning
from adjourn.worker.cli.program import app as program
from adjourn.worker.config.settings import Settings, unknown_variables
from adjourn.worker.embedded.wheels import find_wheels

HOUSE = Path(__file__).parents[2]
ROOMS = ("worker", "tasks", "schemas", "store")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load((HOUSE / "docker-compose.yml").read_text())["services"]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement).group() for requirement in requirements} - {"adjourn"}


# --- containers ------------------------------------------------------------------------------


def of_ours(services: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services that run our image."""
    return {name: service for name, service in services.items() if service["image"].startswith("adjourn:")}


def of_others(services: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The services that run a published image, with its version."""
    found = {}
    for name in services.keys() - of_ours(services):
        version = re.fullmatch(r"[a-z/]+:(\d+(?:\.\d+)+)-\w+", services[name]["image"])
        assert version, f"{name}: the image is not pinned"
        found[name] = tuple(map(int, version[1].split(".")))
    return found


def test_no_service_publishes_a_port(services: dict[str, Any]) -> None:
    assert {name for name, service in services.items() if "ports" in service} == set()


def test_the_servers_are_of_the_versions_that_the_tests_run_on(services: dict[str, Any]) -> None:
    wheels = find_wheels()
    runs = {
        "postgres": [wheels.postgres_bin / "postgres", "--version"],
        "valkey": [wheels.valkey_server, "--version"],
    }
    deployed = of_others(services)
    assert deployed.keys() == runs.keys()
    for name, command in runs.items():
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        tested = re.search(r"(\d+)\.\d+", said)
        assert tested, said
        assert deployed[name][0] == int(tested[1]), f"{name}: the major version"


def test_whoever_is_waited_for_can_say_that_it_is_ready(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for other, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (name, other)
            else:
                # It ends, so it may not be started again.
                assert wanted["condition"] == "service_completed_successfully", (name, other)
                assert services[other]["restart"] == "no", (name, other)


def test_workers_wait_for_the_migration_and_for_every_server_that_they_use(services: dict[str, Any]) -> None:
    given = services["worker"]["environment"]
    urls = [re.sub(r"\$\{[^}]*\}", "filled-in", given[name]) for name in given if name.endswith("_URL")]
    used = {urlsplit(url).hostname for url in urls}
    assert used == of_others(services).keys()
    assert services["worker"]["depends_on"].keys() == used | {"migrate"}


def test_what_our_containers_are_told_is_what_the_program_knows(services: dict[str, Any]) -> None:
    for name, service in of_ours(services).items():
        assert unknown_variables(service["environment"]) == [], name
        assert CliRunner().invoke(program, [*service["command"], "--help"]).exit_code == 0, name


def test_what_the_servers_store_outlives_their_containers(services: dict[str, Any]) -> None:
    declared = yaml.safe_load((HOUSE / "docker-compose.yml").read_text())["volumes"].keys()
    versions = of_others(services)
    for name in versions:
        (volume,) = services[name]["volumes"]
        source, folder = volume.split(":")
        assert source in declared, name
        if name == "postgres" and versions[name][0] >= 18:
            # Mounted at /data, as before 18, the volume stays empty and the data is lost with the container.
            assert not folder.endswith("/data")


def test_postgres_has_connections_for_as_many_workers_as_the_file_recommends(services: dict[str, Any]) -> None:
    recommended = re.search(r"--scale worker=(\d+)", (HOUSE / "docker-compose.yml").read_text())
    command = services["postgres"]["command"]
    (most,) = [int(each.partition("=")[2]) for each in command if each.startswith("max_connections=")]
    assert recommended
    assert most > int(recommended[1]) * Settings.model_fields["database_pool_size"].default


def test_workers_can_be_scaled(services: dict[str, Any]) -> None:
    assert "container_name" not in services["worker"]
    assert services["worker"].get("deploy", {}).get("replicas", 1) == 1


def test_a_worker_has_time_to_put_its_turns_back(services: dict[str, Any]) -> None:
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > Tuning().shutdown_seconds


def test_no_password_is_written_down(services: dict[str, Any]) -> None:
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    urls = [url for each in of_ours(services).values() for url in each["environment"].values() if "@" in url]
    assert urls
    for url in urls:
        assert re.search(r":\$\{[A-Z_]+:\?[^}]*\}@", url), url


def test_the_image_is_pinned_and_does_not_run_as_root(project: dict[str, Any]) -> None:
    lines = (HOUSE / "Dockerfile").read_text().splitlines()
    version = re.fullmatch(r"FROM python:(\d+)\.(\d+)\.\d+-slim-\w+", lines[0])
    assert version
    assert f"Programming Language :: Python :: {version[1]}.{version[2]}" in project["classifiers"]
    assert "USER adjourn" in lines
    assert lines.index("USER adjourn") < lines.index('ENTRYPOINT ["adjourn"]')


# --- the house -------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_stand_at_the_top_as_relative_links(room: str) -> None:
    assert (HOUSE / room).readlink() == Path("adjourn", room)


COPIED = [
    HOUSE / "README.md",
    HOUSE / "adjourn/worker/dev/demo_app.py",
    *sorted(page for page in (HOUSE / "docs").rglob("*.md") if "decisions" not in page.parts),
    *sorted((HOUSE / "docs/examples").rglob("*.py")),
]
"""What users copy from."""


@pytest.mark.parametrize("file", COPIED, ids=lambda file: str(file.relative_to(HOUSE)))
def test_what_users_copy_imports_from_the_public_modules_only(file: Path) -> None:
    imported = set(re.findall(r"^\s*(?:from|import) (adjourn[\w.]*)", file.read_text(), re.MULTILINE))
    assert imported <= {"adjourn", "adjourn.testing"}


def test_no_tool_goes_through_the_links() -> None:
    looked_at = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-files"], cwd=HOUSE, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    tops = {Path(line).relative_to(HOUSE).parts[0] for line in looked_at}
    assert "adjourn" in tops
    assert tops.isdisjoint(ROOMS)


def test_ci_runs_the_commands_of_the_makefile() -> None:
    script = (HOUSE / ".ci" / "run").read_text().splitlines()
    assert [line for line in script if line.startswith("make ")] == ["make lint", "make test"]


def test_the_licence_of_every_dependency_is_written_down(project: dict[str, Any]) -> None:
    rows = re.findall(r"^\| ([\w-]+) \| .* \| (.*) \|$", (HOUSE / "docs" / "licences.md").read_text(), re.MULTILINE)
    written = dict(rows[1:])
    extras = project["optional-dependencies"].values()
    assert set(written) == names(project["dependencies"]).union(*map(names, extras))


def test_the_licences_are_those_that_the_packages_state(project: dict[str, Any]) -> None:
    text = (HOUSE / "docs" / "licences.md").read_text()
    checked = 0
    for name in names(project["dependencies"]):
        metadata = importlib.metadata.metadata(name)
        stated = metadata.get("License-Expression") or metadata.get("License")
        if stated and len(stated) < len("MIT OR Apache-2.0") + 1:
            assert re.search(rf"^\| {name} \| run time \| {re.escape(stated)} \|$", text, re.MULTILINE), (name, stated)
            checked += 1
    assert checked > len(project["dependencies"]) / 2


def test_the_version_is_the_same_everywhere(project: dict[str, Any], services: dict[str, Any]) -> None:
    assert adjourn.__version__ == project["version"]
    assert services["worker"]["image"] == f"adjourn:{project['version']}"
