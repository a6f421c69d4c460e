"""Decides what happens next in a run. Pure: no I/O, no clock."""
