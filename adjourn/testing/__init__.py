"""Test helpers for users: runs of an app, driven step by step on a real PostgreSQL and Valkey.

With pytest, take the fixture `adjourn`, which is a `Runner`; nothing has to be installed or started. May
import all of Adjourn; nothing of it imports this.
"""

from adjourn.tasks.models.scripted import ScriptedModel, call, call_raw, say
from adjourn.testing.run import DrivenRun
from adjourn.testing.runner import Runner

__all__ = ["DrivenRun", "Runner", "ScriptedModel", "call", "call_raw", "say"]
