"""Benchmarks: whole cycles of suspend, answer and re-entry, beside a hand-written floor and LangGraph.

`python -m benchmarks` runs them. They stand outside the package: nothing in `adjourn` imports them, and
what is timed here is asserted nowhere in the tests.
"""
