"""The command line: what `adjourn` does when a person or a script calls it."""

from adjourn.worker.cli.program import main as main
