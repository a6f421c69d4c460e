"""`python -m adjourn`: the command line, for where the script is not on the path."""

from adjourn.worker.cli import main

main()
