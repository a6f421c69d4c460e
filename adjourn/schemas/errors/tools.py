"""What a tool did wrong."""

from __future__ import annotations

from adjourn.schemas.errors.base import AdjournError


class ToolError(AdjournError, RuntimeError):
    """Base of what goes to the model as the error result of a call. Tools may raise it themselves."""


class SuspendSwallowedError(ToolError):
    """A tool suspended, and its body went on: it caught that, or it was in a thread or task that it did not await."""

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"suspend swallowed: tool {tool!r} suspended and its body went on; let BaseException pass, "
            "and wait for the result of a thread or task that asks"
        )
        self.tool = tool


class DetachedSuspendError(ToolError):
    """A thread or task of a tool suspended when the body had ended: the call cannot wait any more."""

    def __init__(self, tool: str, wait_point: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} after its body had ended, and nothing was opened; "
            "wait for the result of a thread or task that asks"
        )
        self.tool = tool
        self.wait_point = wait_point


class AskKeyMissingError(ToolError):
    """Two asks ran side by side without keys of their own, so their answers could not be told apart."""

    def __init__(self, tool: str, wait_point: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} side by side with another ask; give each a key of its own"
        )
        self.tool = tool
        self.wait_point = wait_point


class ForeignContextError(ToolError):
    """A tool suspended with a context that is not the one of this call."""

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool!r} suspended with the context of another call; use the one that it was given")
        self.tool = tool


class RunOnceClashError(ToolError):
    """`run_once` was called with a key whose function was still running: its effect would have happened twice."""

    def __init__(self, tool: str, key: str) -> None:
        super().__init__(f"tool {tool!r} used run_once({key!r}) while it was still running; give each use its own key")
        self.tool = tool
        self.key = key


class AskInsideOnceError(ToolError):
    """A tool waited inside `run_once` or a step: once that has its record, nobody would be asked there any more."""

    def __init__(self, tool: str, wait_point: str, key: str) -> None:
        super().__init__(
            f"tool {tool!r} asked {wait_point!r} inside {key!r}, which later passes do not run again; "
            "ask before it or after it"
        )
        self.tool = tool
        self.wait_point = wait_point
        self.key = key


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool ran longer than its execution limit. Waiting does not count."""

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"tool {tool!r} timed out after {seconds:g} s and was interrupted; nobody declined it")
        self.tool = tool
        self.seconds = seconds


class ToolProcessEndedError(ToolError):
    """The process that a tool has for itself ended inside the body. `how` is a signal or an exit code."""

    def __init__(self, tool: str, how: str) -> None:
        super().__init__(f"tool {tool!r} did not finish: its process ended with {how}; what it did until then stands")
        self.tool = tool
        self.how = how


class Refused(ToolError):
    """Base of what `ctx.ask` raises when the wait ended without a submit."""

    def __init__(self, text: str, action_id: str, name: str) -> None:
        super().__init__(text)
        self.action_id = action_id
        self.name = name


class Declined(Refused):
    """The wait was cancelled. Uncaught, it is the denial that the model reads."""

    def __init__(self, action_id: str, name: str, prompt: str | None, reason: str | None, data: object = None) -> None:
        said = f": {prompt}" if prompt else ""
        super().__init__(f"declined{said}" + (f" (reason: {reason})" if reason else ""), action_id, name)
        self.prompt = prompt
        self.reason = reason
        self.data = data
        """What was said beside the reason, as JSON."""


class AnswerFailed(Refused):
    """The wait was failed by who should have answered it."""

    def __init__(self, action_id: str, name: str, message: str, data: object = None) -> None:
        super().__init__(f"{name} could not be answered: {message}", action_id, name)
        self.message = message
        self.data = data


class Expired(Refused, TimeoutError):
    """The wait passed its deadline."""

    def __init__(self, action_id: str, name: str, prompt: str | None) -> None:
        super().__init__(f"{name} expired before anybody answered" + (f": {prompt}" if prompt else ""), action_id, name)
        self.prompt = prompt
