"""Adjourn: AI-agent runs that stop at a typed wait point and go on when the answer comes.

Everything a user needs is imported from here, and loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from adjourn.schemas.actions import Approved as Approved
    from adjourn.schemas.actions import PendingAction as PendingAction
    from adjourn.schemas.actions import Resolution as Resolution
    from adjourn.schemas.answers import Answer as Answer
    from adjourn.schemas.answers import Receipt as Receipt
    from adjourn.schemas.answers import ShortAnswer as ShortAnswer
    from adjourn.schemas.entries import Initial as Initial
    from adjourn.schemas.entries import RefusedEntry as RefusedEntry
    from adjourn.schemas.entries import RequestAnswer as RequestAnswer
    from adjourn.schemas.entries import Resume as Resume
    from adjourn.schemas.entries import SuspendRecord as SuspendRecord
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
    from adjourn.schemas.events import DeltaEvent as DeltaEvent
    from adjourn.schemas.events import EndEvent as EndEvent
    from adjourn.schemas.events import ItemEvent as ItemEvent
    from adjourn.schemas.events import NestedEvent as NestedEvent
    from adjourn.schemas.events import SuspensionEvent as SuspensionEvent
    from adjourn.schemas.events import VoidEvent as VoidEvent
    from adjourn.schemas.handles import Handle as Handle
    from adjourn.schemas.handles import PendingRequest as PendingRequest
    from adjourn.schemas.handles import Result as Result
    from adjourn.schemas.handles import Snapshot as Snapshot
    from adjourn.schemas.limits import Limits as Limits
    from adjourn.schemas.messages import ModelRequest as ModelRequest
    from adjourn.schemas.messages import ModelResponse as ModelResponse
    from adjourn.schemas.messages import RequestedCall as RequestedCall
    from adjourn.schemas.messages import ResultTurn as ResultTurn
    from adjourn.schemas.messages import Usage as Usage
    from adjourn.schemas.messages import UserTurn as UserTurn
    from adjourn.schemas.runs import Run as Run
    from adjourn.schemas.threads import OpenTurn as OpenTurn
    from adjourn.schemas.threads import ThreadState as ThreadState
    from adjourn.schemas.wait_points import WaitPoint as WaitPoint
    from adjourn.tasks.agents import Agent as Agent
    from adjourn.tasks.app import App as App
    from adjourn.tasks.blocks import Parallel as Parallel
    from adjourn.tasks.blocks import Router as Router
    from adjourn.tasks.blocks import Sequence as Sequence
    from adjourn.tasks.context import Context as Context
    from adjourn.tasks.first_answers import FirstAnswer as FirstAnswer
    from adjourn.tasks.first_answers import Question as Question
    from adjourn.tasks.models.protocol import Deltas as Deltas
    from adjourn.tasks.models.protocol import ImmediateModel as ImmediateModel
    from adjourn.tasks.models.protocol import Model as Model
    from adjourn.tasks.models.protocol import StreamingModel as StreamingModel
    from adjourn.tasks.models.providers import ProviderModel as ProviderModel
    from adjourn.tasks.models.retry import RetryingModel as RetryingModel
    from adjourn.tasks.models.scripted import ScriptedModel as ScriptedModel
    from adjourn.tasks.models.scripted import call as call
    from adjourn.tasks.models.scripted import say as say
    from adjourn.tasks.policies import Approval as Approval
    from adjourn.tasks.policies import Denial as Denial
    from adjourn.tasks.policies import PolicyCall as PolicyCall
    from adjourn.tasks.policies import require_approval as require_approval
    from adjourn.tasks.sub_agents import SubAgent as SubAgent
    from adjourn.tasks.tools import Done as Done
    from adjourn.tasks.tools import Tool as Tool
    from adjourn.tasks.tools import client_tool as client_tool
    from adjourn.tasks.tools import handler as handler
    from adjourn.tasks.tools import tool as tool
    from adjourn.worker.actions import Action as Action
    from adjourn.worker.actions import Thread as Thread
    from adjourn.worker.client import Client as Client
    from adjourn.worker.runtime import Runtime as Runtime

_HOMES = {
    "adjourn.schemas.actions": (
        "Approved",
        "PendingAction",
        "Resolution",
    ),
    "adjourn.schemas.answers": (
        "Answer",
        "Receipt",
        "ShortAnswer",
    ),
    "adjourn.schemas.entries": (
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
    "adjourn.schemas.events": (
        "DeltaEvent",
        "EndEvent",
        "ItemEvent",
        "NestedEvent",
        "SuspensionEvent",
        "VoidEvent",
    ),
    "adjourn.schemas.handles": (
        "Handle",
        "PendingRequest",
        "Result",
        "Snapshot",
    ),
    "adjourn.schemas.limits": ("Limits",),
    "adjourn.schemas.messages": (
        "ModelRequest",
        "ModelResponse",
        "RequestedCall",
        "ResultTurn",
        "Usage",
        "UserTurn",
    ),
    "adjourn.schemas.runs": ("Run",),
    "adjourn.schemas.threads": (
        "OpenTurn",
        "ThreadState",
    ),
    "adjourn.schemas.wait_points": ("WaitPoint",),
    "adjourn.tasks.agents": ("Agent",),
    "adjourn.tasks.app": ("App",),
    "adjourn.tasks.blocks": (
        "Parallel",
        "Router",
        "Sequence",
    ),
    "adjourn.tasks.context": ("Context",),
    "adjourn.tasks.first_answers": (
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
    "adjourn.tasks.policies": (
        "Approval",
        "Denial",
        "PolicyCall",
        "require_approval",
    ),
    "adjourn.tasks.sub_agents": ("SubAgent",),
    "adjourn.tasks.tools": (
        "Done",
        "Tool",
        "client_tool",
        "handler",
        "tool",
    ),
    "adjourn.worker.actions": (
        "Action",
        "Thread",
    ),
    "adjourn.worker.client": ("Client",),
    "adjourn.worker.runtime": ("Runtime",),
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
