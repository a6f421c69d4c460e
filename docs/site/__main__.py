"""Stage the pages, then have Zensical build them, strictly."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site import reference

TOP = Path(__file__).parents[2]
DOCS = TOP / "docs"
MARKER = re.compile(r"^<!-- generate: (\w+) -->$", re.MULTILINE)
NO_PAGES = ("site", "results", "__pycache__")
"""Folders of `docs/` that hold no pages."""


def stage(out: Path) -> None:
    """Write the site's configuration and its finished Markdown to `out`."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out / "docs", ignore=shutil.ignore_patterns(*NO_PAGES))
    shutil.copy(DOCS / "site/mkdocs.yml", out)
    shutil.copy(DOCS / "site/style.css", out / "docs")
    for page in (out / "docs").rglob("*.md"):
        page.write_text(MARKER.sub(lambda match: reference.GENERATORS[match[1]](), page.read_text()))


def build(out: Path) -> Path:
    """Build the site below `out`; return its folder. Raises `CalledProcessError` on any warning."""
    stage(out)
    scripts = Path(sys.executable).parent
    # mkdocstrings reads the sources below PYTHONPATH; it does not import them.
    env = {**os.environ, "PYTHONPATH": str(TOP), "NO_COLOR": "1"}
    argv = [str(scripts / "zensical"), "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
    subprocess.run(argv, cwd=out, env=env, check=True)
    return out / "site"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "build/docs", help="folder to build in; it is emptied first")
    print(f"Built {build(parser.parse_args().out.resolve())}/index.html")


if __name__ == "__main__":
    main()
