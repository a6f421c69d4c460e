"""Every code block of the README and of docs/ runs, and the apps in them do what the text says."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from adjourn import App
from adjourn.testing import Runner
from tests.conftest import ProcessFactory
from tests.crash.forkserver import ForkServer
from tests.docs.player import FILE_NAME, Player, blocks

pytestmark = pytest.mark.timeout(900)
"""The blocks of a page start programs, one after the other; on a busy machine that takes minutes."""

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
DOCUMENTS = sorted(page for page in (TOP / "docs").rglob("*.md") if "examples" not in page.parts)
WITH_BLOCKS = [document for document in DOCUMENTS if any(blocks(document))]
WITH_A_WORKER = [d for d in WITH_BLOCKS if not any(block.text.startswith("adjourn dev") for block in blocks(d))]
"""These are played beside a worker of the demo; the others start what they need."""


def app_of(document: Path, name: str) -> App:
    """The `app` of the block that is saved under `name`."""
    for block in blocks(document):
        named = FILE_NAME.match(block.text)
        if named and named[1] == name:
            module = ModuleType(name.removesuffix(".py"))
            sys.modules[module.__name__] = module
            exec(compile(block.text, name, "exec"), module.__dict__)
            app: App = module.app
            return app
    raise AssertionError(f"{document.name} has no block {name}")


@pytest.mark.parametrize("document", [README, *sorted({*WITH_BLOCKS} - {*WITH_A_WORKER})], ids=lambda path: path.name)
def test_what_starts_its_own_worker_can_be_followed(
    document: Path, tmp_path: Path, server_folder: Path, fork_server: ForkServer
) -> None:
    player = Player(tmp_path, {"ADJOURN_DATA_DIR": str(server_folder)}, fork_server)
    try:
        for block in blocks(document):
            player.play(block)
    finally:
        player.close()


@pytest.mark.parametrize("document", WITH_A_WORKER, ids=lambda path: path.name)
def test_every_block_runs(
    document: Path, tmp_path: Path, database_url: str, redis_url: str, process: ProcessFactory, fork_server: ForkServer
) -> None:
    env = {"ADJOURN_DATABASE_URL": database_url, "ADJOURN_REDIS_URL": redis_url}
    worker = process([sys.executable, "-m", "adjourn", "worker", "--app", "adjourn.worker.dev.demo_app:app"], env)
    worker.wait_for_log("worker ready")
    player = Player(tmp_path, env, fork_server)
    for block in blocks(document):
        player.play(block)


def test_the_wheel_that_the_readme_names_is_of_this_version() -> None:
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert set(re.findall(r"wheels/[\w.-]+\.whl", README.read_text())) == {f"wheels/adjourn-{version}-py3-none-any.whl"}


@pytest.mark.parametrize("document", [README, *DOCUMENTS], ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for line in document.read_text().splitlines():
        for target in line.split("](")[1:]:
            name = target.split(")")[0].split("#")[0]
            if name and "://" not in name:
                assert (document.parent / name).exists(), f"{document.name} links to {name}"


def test_both_styles_of_the_tools_page(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/tools.md", "drafts.py"), "writer", "go")
    assert {action.name for action in run.pending} == {"draft_inline.details", "draft_entry.details"}
    for action in reversed(run.pending):
        action.submit({"audience": "the board"})
    for action, approved in zip(run.pending, (True, False), strict=True):
        action.submit({"approved": approved})
    (inline,), (entry,) = run.results("draft_inline"), run.results("draft_entry")
    assert sorted((inline["status"], entry["status"])) == ["approved", "rejected"]
    assert run.output == "Both are done."


@pytest.mark.parametrize(("data", "by"), [({"by": "Ada"}, "Ada"), (None, "somebody")])
def test_the_request_of_the_tools_page(adjourn: Runner, data: dict[str, str] | None, by: str) -> None:
    run = adjourn.start(app_of(TOP / "docs/tools.md", "secrets_app.py"), "approver", "go")
    (action,) = run.pending
    assert (action.name, action.request_id, action.input) == ("secret_action.request", "req-1", {"amount": 7})
    action.submit(data)
    assert run.results("secret_action") == [f"action performed, approved by {by}"]


def test_the_poll_of_the_tools_page(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/tools.md", "reviews.py"), "pollster", "go")
    ada, bo = sorted(run.pending, key=lambda action: str(action.prompt))
    bo.submit({"yes": True})
    assert run.status == "parked"
    ada.submit({"yes": False})
    assert run.results("poll") == [1]


def test_the_invoice_of_the_tools_page_is_drafted_once(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/tools.md", "invoices.py"), "clerk", "go")
    shown = run.waits_at("invoice.approval").prompt
    run.answer({"approved": True})
    (output,) = run.results("invoice")
    assert shown == f"Send {output}?"
    assert output.startswith("draft of ACME under run_")


def test_the_desk_of_the_blocks_page(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/blocks.md", "desk.py"), "desk", "  whales  ")
    assert [action.prompt for action in run.pending] == ["Publish 'Whales sing.'?"] * 2
    run.answer_all({"legal.approval": {"approved": True}, "press.approval": {"approved": True}})
    assert run.output == "published: Whales sing."


def test_the_editor_of_the_sub_agents_page(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/sub_agents.md", "research.py"), "editor", "go")
    assert {action.origin.block_path for action in run.pending} == {("editor", "researcher", "open_archive")}
    for action, granted in zip(run.pending, (True, False), strict=True):
        action.submit({"granted": granted})
    assert run.output in ("three pages on whales; nothing on tides", "nothing on whales; three pages on tides")
    assert "parked" not in run.timeline


def test_the_till_of_the_blocks_page(adjourn: Runner) -> None:
    run = adjourn.start(app_of(TOP / "docs/blocks.md", "till.py"), "clerk", "go")
    assert run.waits_at("pay.call_approval").prompt == "Pay Ada?"
    run.answer({"approved": True, "args": {"amount": 400, "to": "Ada"}})
    assert run.results("pay") == ["paid 400 to Ada"]
