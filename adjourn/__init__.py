"""Adjourn: AI-agent runs that stop at a typed wait point and go on when the answer comes.

Everything a user needs is imported from here, and loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from adjourn.schemas.errors import AdjournError as AdjournError
    from adjourn.schemas.errors import AnswerFailed as AnswerFailed
    from adjourn.schemas.errors import AnswerRefusedError as AnswerRefusedError
    from adjourn.schemas.errors import ChildRunError as ChildRunError
    from adjourn.schemas.errors import ConfigurationError as ConfigurationError
    from adjourn.schemas.errors import DamagedRecordError as DamagedRecordError
    from adjourn.schemas.errors import Declined as Declined
    from adjourn.schemas.errors import DefinitionError as DefinitionError
    from adjourn.schemas.errors import Expired as Expired
    from adjourn.schemas.errors import ForkRefusedError as ForkRefusedError
    from adjourn.schemas.errors import HandleClashError as HandleClashError
    from adjourn.schemas.errors import IllegalArgumentError as IllegalArgumentError
    from adjourn.schemas.errors import IllegalIdError as IllegalIdError
    from adjourn.schemas.errors import ModelRequestError as ModelRequestError
    from adjourn.schemas.errors import NotFoundError as NotFoundError
    from adjourn.schemas.errors import NotRetryableError as NotRetryableError
    from adjourn.schemas.errors import Refused as Refused
    from adjourn.schemas.errors import ReplayMismatchError as ReplayMismatchError
    from adjourn.schemas.errors import RequestError as RequestError
    from adjourn.schemas.errors import RunEndedError as RunEndedError
    from adjourn.schemas.errors import RunIdClashError as RunIdClashError
    from adjourn.schemas.errors import StoredValueError as StoredValueError
    from adjourn.schemas.errors import StoreUnavailableError as StoreUnavailableError
    from adjourn.schemas.errors import ThreadBusyError as ThreadBusyError
    from adjourn.schemas.errors import ToolChangedError as ToolChangedError
    from adjourn.schemas.errors import ToolError as ToolError
    from adjourn.schemas.errors import UnusableHandleError as UnusableHandleError
    from adjourn.schemas.errors import WaitTimeoutError as WaitTimeoutError
    from adjourn.schemas.records.actions import Approved as Approved
    from adjourn.schemas.records.actions import PendingAction as PendingAction
    from adjourn.schemas.records.actions import Resolution as Resolution
    from adjourn.schemas.records.answers import Answer as Answer
    from adjourn.schemas.records.answers import Receipt as Receipt
    from adjourn.schemas.records.answers import ShortAnswer as ShortAnswer
    from adjourn.schemas.records.entries import Initial as Initial
    from adjourn.schemas.records.entries import RefusedEntry as RefusedEntry
    from adjourn.schemas.records.entries import RequestAnswer as RequestAnswer
    from adjourn.schemas.records.entries import Resume as Resume
    from adjourn.schemas.records.entries import SuspendRecord as SuspendRecord
    from adjourn.schemas.records.events import AttemptDiscarded as AttemptDiscarded
    from adjourn.schemas.records.events import DeltaEvent as DeltaEvent
    from adjourn.schemas.records.events import EndEvent as EndEvent
    from adjourn.schemas.records.events import ItemEvent as ItemEvent
    from adjourn.schemas.records.events import NestedEvent as NestedEvent
    from adjourn.schemas.records.events import SuspensionEvent as SuspensionEvent
    from adjourn.schemas.records.handles import Handle as Handle
    from adjourn.schemas.records.handles import PendingRequest as PendingRequest
    from adjourn.schemas.records.handles import Result as Result
    from adjourn.schemas.records.handles import Snapshot as Snapshot
    from adjourn.schemas.records.limits import Limits as Limits
    from adjourn.schemas.records.messages import ModelRequest as ModelRequest
    from adjourn.schemas.records.messages import ModelResponse as ModelResponse
    from adjourn.schemas.records.messages import RequestedCall as RequestedCall
    from adjourn.schemas.records.messages import ResultTurn as ResultTurn
    from adjourn.schemas.records.messages import Usage as Usage
    from adjourn.schemas.records.messages import UserTurn as UserTurn
    from adjourn.schemas.records.runs import Run as Run
    from adjourn.schemas.records.threads import OpenTurn as OpenTurn
    from adjourn.schemas.records.threads import ThreadState as ThreadState
    from adjourn.schemas.records.wait_points import WaitPoint as WaitPoint
    from adjourn.tasks.blocks.agents import Agent as Agent
    from adjourn.tasks.blocks.app import App as App
    from adjourn.tasks.blocks.composites import Parallel as Parallel
    from adjourn.tasks.blocks.composites import Router as Router
    from adjourn.tasks.blocks.composites import Sequential as Sequence
    from adjourn.tasks.blocks.policies import Deny as Denial
    from adjourn.tasks.blocks.policies import PolicyCall as PolicyCall
    from adjourn.tasks.blocks.policies import RequireApproval as Approval
    from adjourn.tasks.blocks.policies import require_approval as require_approval
    from adjourn.tasks.blocks.sub_agents import SubAgent as SubAgent
    from adjourn.tasks.blocks.tools import Recovered as Done
    from adjourn.tasks.blocks.tools import Tool as Tool
    from adjourn.tasks.blocks.tools import client_tool as client_tool
    from adjourn.tasks.blocks.tools import tool as handler
    from adjourn.tasks.blocks.tools import tool as tool
    from adjourn.tasks.context.facade import Context as Context
    from adjourn.tasks.context.first_answers import FirstAnswer as FirstAnswer
    from adjourn.tasks.context.first_answers import Question as Question
    from adjourn.tasks.models.protocol import Deltas as Deltas
    from adjourn.tasks.models.protocol import ImmediateModel as ImmediateModel
    from adjourn.tasks.models.protocol import Model as Model
    from adjourn.tasks.models.protocol import StreamingModel as StreamingModel
    from adjourn.tasks.models.providers import ProviderModel as ProviderModel
    from adjourn.tasks.models.retry import RetryingModel as RetryingModel
    from adjourn.tasks.models.scripted import ScriptedModel as ScriptedModel
    from adjourn.tasks.models.scripted import call as call
    from adjourn.tasks.models.scripted import say as say
    from adjourn.worker.client.actions import Action as Action
    from adjourn.worker.client.actions import Thread as Thread
    from adjourn.worker.client.client import Client as Client
    from adjourn.worker.client.runtime import Runtime as Runtime

_HOMES = {
    "adjourn.schemas.records.actions": (
        "Approved",
        "PendingAction",
        "Resolution",
    ),
    "adjourn.schemas.records.answers": (
        "Answer",
        "Receipt",
        "ShortAnswer",
    ),
    "adjourn.schemas.records.entries": (
        "Initial",
        "RefusedEntry",
        "RequestAnswer",
        "Resume",
        "SuspendRecord",
    ),
    "adjourn.schemas.errors": (
        "AdjournError",
        "AnswerFailed",
        "AnswerRefusedError",
        "ChildRunError",
        "ConfigurationError",
        "Declined",
        "DamagedRecordError",
        "DefinitionError",
        "Expired",
        "ForkRefusedError",
        "HandleClashError",
        "IllegalArgumentError",
        "IllegalIdError",
        "ModelRequestError",
        "NotFoundError",
        "NotRetryableError",
        "Refused",
        "ReplayMismatchError",
        "RequestError",
        "RunEndedError",
        "RunIdClashError",
        "StoreUnavailableError",
        "StoredValueError",
        "ThreadBusyError",
        "ToolChangedError",
        "ToolError",
        "UnusableHandleError",
        "WaitTimeoutError",
    ),
    "adjourn.schemas.records.events": (
        "DeltaEvent",
        "EndEvent",
        "ItemEvent",
        "NestedEvent",
        "SuspensionEvent",
        "AttemptDiscarded",
    ),
    "adjourn.schemas.records.handles": (
        "Handle",
        "PendingRequest",
        "Result",
        "Snapshot",
    ),
    "adjourn.schemas.records.limits": ("Limits",),
    "adjourn.schemas.records.messages": (
        "ModelRequest",
        "ModelResponse",
        "RequestedCall",
        "ResultTurn",
        "Usage",
        "UserTurn",
    ),
    "adjourn.schemas.records.runs": ("Run",),
    "adjourn.schemas.records.threads": (
        "OpenTurn",
        "ThreadState",
    ),
    "adjourn.schemas.records.wait_points": ("WaitPoint",),
    "adjourn.tasks.blocks.agents": ("Agent",),
    "adjourn.tasks.blocks.app": ("App",),
    "adjourn.tasks.blocks.composites": (
        "Parallel",
        "Router",
        "Sequence",
    ),
    "adjourn.tasks.context.facade": ("Context",),
    "adjourn.tasks.context.first_answers": (
        "FirstAnswer",
        "Question",
    ),
    "adjourn.tasks.models.protocol": (
        "Deltas",
        "ImmediateModel",
        "Model",
        "StreamingModel",
    ),
    "adjourn.tasks.models.providers": ("ProviderModel",),
    "adjourn.tasks.models.retry": ("RetryingModel",),
    "adjourn.tasks.models.scripted": (
        "ScriptedModel",
        "call",
        "say",
    ),
    "adjourn.tasks.blocks.policies": (
        "Approval",
        "Denial",
        "PolicyCall",
        "require_approval",
    ),
    "adjourn.tasks.blocks.sub_agents": ("SubAgent",),
    "adjourn.tasks.blocks.tools": (
        "Done",
        "Tool",
        "client_tool",
        "handler",
        "tool",
    ),
    "adjourn.worker.client.actions": (
        "Action",
        "Thread",
    ),
    "adjourn.worker.client.client": ("Client",),
    "adjourn.worker.client.runtime": ("Runtime",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'adjourn' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
