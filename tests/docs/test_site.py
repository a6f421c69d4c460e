"""The docs site builds without a warning, and its reference pages show what the code has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import adjourn

TOP = Path(__file__).parents[2]
PUBLIC = [name for name in adjourn.__all__ if not name.startswith("__")]


def is_error(name: str) -> bool:
    thing = getattr(adjourn, name)
    return isinstance(thing, type) and issubclass(thing, BaseException)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Building it fails on a dead link, a page outside the navigation, or a missing docstring."""
    out = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [sys.executable, "-m", "docs.site", "--out", str(out)], cwd=TOP, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return out / "site"


def test_every_page_is_built(site: Path) -> None:
    pages = {page.relative_to(TOP / "docs").with_suffix("") for page in (TOP / "docs").rglob("*.md")}
    built = {page.parent.relative_to(site) for page in site.rglob("index.html")}
    of_a_folder = {page.parent if page.name in ("index", "README") else page for page in pages}
    assert of_a_folder <= built


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("api", [f'id="adjourn.{name}"' for name in PUBLIC if not is_error(name)]),
        ("cli", ["adjourn worker", "--app MODULE:ATTR", "adjourn answer"]),
        ("settings", ["ADJOURN_DATABASE_URL", "ADJOURN_CONCURRENCY", "LEASE_SECONDS"]),
        (
            "errors",
            ["resumes_from", *(f">{name}<" for name in PUBLIC if is_error(name))],
        ),
        ("messages", ['id="answer"', "answer_id", 'id="receipt"']),
    ],
)
def test_reference_pages_are_made_from_the_code(site: Path, page: str, texts: list[str]) -> None:
    html = (site / "reference" / page / "index.html").read_text()
    assert [text for text in texts if text not in html] == []
    assert "<!-- generate:" not in html


@pytest.mark.parametrize(
    "method",
    [
        *("Client.start", "Client.thread", "Client.wait", "Client.fork", "Client.submit", "Client.close"),
        *("RunHandle.wait", "RunHandle.state", "ThreadHandle.wait", "ThreadHandle.send", "ThreadHandle.wake"),
    ],
)
def test_methods_are_described_wherever_they_are_defined(site: Path, method: str) -> None:
    assert f'id="adjourn.{method}"' in (site / "reference/api/index.html").read_text()


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    html = (site / "index.html").read_text()
    loaded = [line for line in html.split("<") if line.startswith(("script", "link", "img")) and "://" in line]
    assert loaded == []


@pytest.mark.parametrize("picture", sorted((TOP / "docs/pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_can_be_read_aloud_and_in_the_dark(picture: Path) -> None:
    text = picture.read_text()
    assert all(part in text for part in ('role="img"', "<title ", "<desc ", "prefers-color-scheme: dark"))
