"""Every code block of the README and of docs/ runs, and the apps in them do what the text says."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from adjourn import App
from tests.conftest import ProcessFactory
from tests.docs.player import FILE_NAME, Player, blocks
from tests.world import World

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
DOCUMENTS = sorted((TOP / "docs").glob("*.md"))


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


def test_the_readme_can_be_followed(tmp_path: Path, server_folder: Path) -> None:
    player = Player(tmp_path, {"ADJOURN_DATA_DIR": str(server_folder)})
    try:
        for block in blocks(README):
            player.play(block)
    finally:
        player.close()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_runs(
    document: Path, tmp_path: Path, database_url: str, redis_url: str, process: ProcessFactory
) -> None:
    env = {"ADJOURN_DATABASE_URL": database_url, "ADJOURN_REDIS_URL": redis_url}
    worker = process([sys.executable, "-m", "adjourn", "worker", "--app", "adjourn.worker.demo_app:app"], env)
    worker.wait_for_log("worker ready")
    player = Player(tmp_path, env)
    for block in blocks(document):
        player.play(block)


@pytest.mark.parametrize("document", [README, *DOCUMENTS], ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for line in document.read_text().splitlines():
        for target in line.split("](")[1:]:
            name = target.split(")")[0].split("#")[0]
            if name and "://" not in name:
                assert (document.parent / name).exists(), f"{document.name} links to {name}"


def test_both_styles_of_the_tools_page(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/tools.md", "drafts.py"), database_url, redis_url)
    try:
        run_id = w.start(agent="writer")
        assert {action.name for action in w.pending(run_id)} == {"draft_inline.details", "draft_entry.details"}
        for action in reversed(w.pending(run_id)):
            w.answer(action, {"audience": "the board"})
        for action, approved in zip(w.pending(run_id), (True, False), strict=True):
            w.answer(action, {"approved": approved})
        outcomes = {output.tool: output.content["status"] for output in w.outputs(run_id)}
        assert sorted(outcomes.values()) == ["approved", "rejected"]
        assert w.run(run_id).output == "Both are done."
    finally:
        w.close()


def test_the_poll_of_the_tools_page(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/tools.md", "reviews.py"), database_url, redis_url)
    try:
        run_id = w.start(agent="pollster")
        ada, bo = sorted(w.pending(run_id), key=lambda action: str(action.prompt))
        w.answer(bo, {"yes": True})
        assert w.run(run_id).status == "parked"
        w.answer(ada, {"yes": False})
        assert [output.content for output in w.outputs(run_id)] == [1]
    finally:
        w.close()


def test_the_steps_of_the_tools_page(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/tools.md", "onboarding.py"), database_url, redis_url)
    try:
        run_id = w.start(agent="host")
        w.answer(w.the_action(run_id), {"approved": True})
        (output,) = w.outputs(run_id)
        assert output.content == "account of Ada, key to the front door, key to the back door"
    finally:
        w.close()


def test_the_invoice_of_the_tools_page_is_drafted_once(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/tools.md", "invoices.py"), database_url, redis_url)
    try:
        run_id = w.start(agent="clerk")
        shown = w.the_action(run_id).prompt
        w.answer(w.the_action(run_id), {"approved": True})
        (output,) = w.outputs(run_id)
        assert shown == f"Send {output.content}?"
        assert output.content.startswith("draft of ACME under run_")
    finally:
        w.close()


def test_the_desk_of_the_blocks_page(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/blocks.md", "desk.py"), database_url, redis_url)
    try:
        run_id = w.start("  whales  ", agent="desk")
        assert {action.name for action in w.pending(run_id)} == {"legal.approval", "press.approval"}
        for action in w.pending(run_id):
            assert action.prompt == "Publish 'Whales sing.'?"
            w.answer(action, {"approved": True})
        assert w.run(run_id).output == "published: Whales sing."
    finally:
        w.close()


def test_the_till_of_the_blocks_page(database_url: str, redis_url: str) -> None:
    w = World(app_of(TOP / "docs/blocks.md", "till.py"), database_url, redis_url)
    try:
        run_id = w.start(agent="clerk")
        action = w.the_action(run_id)
        assert (action.name, action.prompt) == ("pay.call_approval", "Pay Ada?")
        w.answer(action, {"approved": True, "args": {"amount": 400, "to": "Ada"}})
        assert [output.content for output in w.outputs(run_id)] == ["paid 400 to Ada"]
    finally:
        w.close()
