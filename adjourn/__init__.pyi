"""The public names of Adjourn, by topic. `import adjourn` loads each when it is first used."""

__version__: str

# --- Define: tools, agents and what they are made of
from .tasks.blocks.tools import tool as tool
from .tasks.blocks.tool_options import ToolOptions as ToolOptions
from .tasks.blocks.tools import client_tool as client_tool
from .tasks.blocks.tools import Tool as Tool
from .tasks.context.facade import Context as Context
from .schemas.records.wait_points import WaitPoint as WaitPoint
from .tasks.blocks.agents import Agent as Agent
from .tasks.blocks.sub_agents import SubAgent as SubAgent
from .tasks.blocks.composites import Sequential as Sequential
from .tasks.blocks.composites import Parallel as Parallel
from .tasks.blocks.composites import Router as Router
from .tasks.blocks.app import App as App
from .schemas.records.limits import Limits as Limits

# --- Approve: policies
from .tasks.blocks.policies import require_approval as require_approval
from .tasks.blocks.policies import RequireApproval as RequireApproval
from .tasks.blocks.policies import Deny as Deny
from .tasks.blocks.policies import PolicyCall as PolicyCall
from .schemas.records.actions import Approved as Approved

# --- Inside a tool: entries and earlier waits
from .schemas.records.entries import Initial as Initial
from .schemas.records.entries import Resume as Resume
from .schemas.records.entries import RefusedEntry as RefusedEntry
from .schemas.records.entries import RequestAnswer as RequestAnswer
from .schemas.records.entries import SuspendRecord as SuspendRecord
from .tasks.context.first_answers import Question as Question
from .tasks.context.first_answers import FirstAnswer as FirstAnswer
from .tasks.blocks.tools import Recovered as Recovered

# --- Use: clients and what they return
from .worker.client.client import Client as Client
from .worker.client.handles import Handle as Handle
from .worker.client.handles import RunHandle as RunHandle
from .worker.client.handles import ThreadHandle as ThreadHandle
from .schemas.records.runs import Run as Run
from .worker.client.actions import Action as Action
from .schemas.records.actions import PendingAction as PendingAction
from .schemas.records.actions import Resolution as Resolution
from .worker.client.actions import ThreadState as ThreadState
from .schemas.records.threads import OpenTurn as OpenTurn
from .schemas.records.messages import Usage as Usage
from .schemas.records.handles import PendingRequest as PendingRequest
from .schemas.records.handles import Result as Result
from .schemas.records.handles import Snapshot as Snapshot

# --- Answer: what goes over the queue
from .schemas.records.answers import Answer as Answer
from .schemas.records.answers import ShortAnswer as ShortAnswer
from .schemas.records.answers import Receipt as Receipt

# --- Watch: events
from .schemas.records.events import ItemEvent as ItemEvent
from .schemas.records.events import SuspensionEvent as SuspensionEvent
from .schemas.records.events import ParkedEvent as ParkedEvent
from .schemas.records.events import EndEvent as EndEvent
from .schemas.records.events import DeltaEvent as DeltaEvent
from .schemas.records.events import NestedEvent as NestedEvent
from .schemas.records.events import AttemptDiscarded as AttemptDiscarded

# --- Models
from .tasks.models.protocol import Model as Model
from .tasks.models.protocol import ImmediateModel as ImmediateModel
from .tasks.models.protocol import StreamingModel as StreamingModel
from .tasks.models.protocol import Deltas as Deltas
from .schemas.records.messages import ModelRequest as ModelRequest
from .schemas.records.messages import ModelResponse as ModelResponse
from .schemas.records.messages import RequestedCall as RequestedCall
from .schemas.records.messages import UserTurn as UserTurn
from .schemas.records.messages import ResultTurn as ResultTurn
from .tasks.models.providers import ProviderModel as ProviderModel
from .tasks.models.retry import RetryingModel as RetryingModel
from .tasks.models.scripted import ScriptedModel as ScriptedModel
from .tasks.models.scripted import call as call
from .tasks.models.scripted import say as say

# --- Errors
from .schemas.errors import AdjournError as AdjournError
from .schemas.errors import AnswerFailed as AnswerFailed
from .schemas.errors import AnswerRefusedError as AnswerRefusedError
from .schemas.errors import AskAwaitedError as AskAwaitedError
from .schemas.errors import ChildRunError as ChildRunError
from .schemas.errors import ConfigurationError as ConfigurationError
from .schemas.errors import DamagedRecordError as DamagedRecordError
from .schemas.errors import Declined as Declined
from .schemas.errors import DefinitionError as DefinitionError
from .schemas.errors import Expired as Expired
from .schemas.errors import ForkRefusedError as ForkRefusedError
from .schemas.errors import HandleClashError as HandleClashError
from .schemas.errors import IllegalArgumentError as IllegalArgumentError
from .schemas.errors import IllegalIdError as IllegalIdError
from .schemas.errors import ModelRequestError as ModelRequestError
from .schemas.errors import NotFoundError as NotFoundError
from .schemas.errors import NotRetryableError as NotRetryableError
from .schemas.errors import Refused as Refused
from .schemas.errors import ReplayMismatchError as ReplayMismatchError
from .schemas.errors import RequestError as RequestError
from .schemas.errors import RunEndedError as RunEndedError
from .schemas.errors import RunIdClashError as RunIdClashError
from .schemas.errors import StoreUnavailableError as StoreUnavailableError
from .schemas.errors import StoredValueError as StoredValueError
from .schemas.errors import ThreadBusyError as ThreadBusyError
from .schemas.errors import ToolChangedError as ToolChangedError
from .schemas.errors import ToolError as ToolError
from .schemas.errors import UnusableHandleError as UnusableHandleError
from .schemas.errors import WaitTimeoutError as WaitTimeoutError
