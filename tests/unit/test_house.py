"""What the files around the code promise: containers, links, licences, and that CI runs what users run."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_no_service_publishes_a_port(services: dict[str, Any]) -> None:
    assert {name for name, service in services.items() if "ports" in service} == set()


@pytest.mark.parametrize(
    ("service", "image"), [("postgres", r"postgres:18\.\d+-\w+"), ("valkey", r"valkey/valkey:9\.\d+\.\d+-\w+")]
)
def test_servers_are_pinned_checked_and_kept(services: dict[str, Any], service: str, image: str) -> None:
    server = services[service]
    assert re.fullmatch(image, server["image"])
    assert server["healthcheck"]["test"][0] == "CMD"
    assert len(server["volumes"]) == 1


def test_the_volume_of_postgres_is_where_version_18_keeps_its_data(services: dict[str, Any]) -> None:
    assert services["postgres"]["volumes"][0].endswith(":/var/lib/postgresql")


def test_valkey_keeps_what_it_is_given(services: dict[str, Any]) -> None:
    command = services["valkey"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_workers_wait_for_the_migration_and_for_healthy_servers(services: dict[str, Any]) -> None:
    assert services["worker"]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "postgres": {"condition": "service_healthy"},
        "valkey": {"condition": "service_healthy"},
    }
    assert services["migrate"]["command"] == ["migrate"]
    assert services["migrate"]["restart"] == "no"


def test_workers_can_be_scaled(services: dict[str, Any]) -> None:
    assert "container_name" not in services["worker"]
    assert services["worker"].get("deploy", {}).get("replicas", 1) == 1


def test_a_worker_has_time_to_put_its_turns_back(services: dict[str, Any]) -> None:
    from adjourn.schemas.policy import Policy

    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > Policy().shutdown_seconds


def test_no_password_is_written_down(services: dict[str, Any]) -> None:
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    assert ":${POSTGRES_PASSWORD:?" in services["worker"]["environment"]["ADJOURN_DATABASE_URL"]


def test_the_image_is_pinned_and_does_not_run_as_root() -> None:
    lines = (HOUSE / "Dockerfile").read_text().splitlines()
    assert re.fullmatch(r"FROM python:3\.12\.\d+-slim-\w+", lines[0])
    assert "USER adjourn" in lines
    assert lines.index("USER adjourn") < lines.index('ENTRYPOINT ["adjourn"]')


# --- the house -------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_stand_at_the_top_as_relative_links(room: str) -> None:
    assert (HOUSE / room).readlink() == Path("adjourn", room)


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
    import adjourn

    assert adjourn.__version__ == project["version"]
    assert services["worker"]["image"] == f"adjourn:{project['version']}"
