"""What to do about each error: the last column of the reference page of errors.

The build of the site compares the names with the errors of the code, and fails if they differ.
"""

from typing import Final

FIX_AND_RETRY: Final = "Deploy code that fits, then `adjourn retry RUN`."

REMEDIES: Final = {
    # definitions and settings
    "DefinitionError": "Correct the definition; the message names the place. It is raised on import, before any run.",
    "ConfigurationError": "Set or correct the variable that the message names. `adjourn doctor` tests all of them.",
    "StoreUnavailableError": "Check that the server runs and its URL is right, then call again. "
    "Give ids of your own (`run_id=`, `answer_id=`), so that the second call cannot do the work twice.",
    "WorkerEndedError": "Read the last lines of the worker's log in the message.",
    # requests
    "RequestError": "Catch it to handle every refusal of a request alike.",
    "ThreadBusyError": 'Wait for the run, or send with `when_busy="enqueue"` or `"supersede"`.',
    "RunIdClashError": "Send the same request again, or choose a new run id. The message names what differs.",
    "IllegalArgumentError": "Correct the argument; the message says what the method takes.",
    "IllegalIdError": "Use 1 to 100 letters, digits and `. _ : -`.",
    "NotFoundError": "Check the id, and that the client is connected to the right deployment.",
    "UnusableHandleError": "Do what the message says; most often spawn the handle again with the same root and name.",
    "HandleClashError": "Spawn the handle under another name, or use the thread that is there: `client.thread(id)`.",
    "ForkRefusedError": "Do what the message says; most often choose another `new_thread_id`.",
    "ChildRunError": "Retry the run at the root of the tree. Its failed children are retried with it.",
    "NotRetryableError": "Start a new run: the failure is this run's result.",
    "AnswerRefusedError": "Look at `status` and `issues`. The action is still pending after `invalid`; "
    "after `late` somebody else was faster.",
    "CredentialError": "Issue a new credential with `adjourn credential`.",
    "RunEndedError": "Look at `status`: the run ended in another way than the one you waited for.",
    "WaitTimeoutError": "Wait again. Waiting changes nothing, and the run continues.",
    # what ends a run
    "RunError": "Read `run.error`; `adjourn show RUN` shows what led to it.",
    "CodeMismatchError": "Run `adjourn check` before a deploy: it lists the runs that a build would fail.",
    "UnknownBlockError": "Register the block in the `App`, or deploy the build that has it, then `adjourn retry RUN`.",
    "StaleClaimError": "Nothing: another worker has the run, or it was cancelled. It appears in logs only.",
    "ReplayMismatchError": "Make what stands before a wait do the same on every pass, or put it into `ctx.run_once`. "
    "Then `adjourn retry RUN`.",
    "StoredValueError": "The value is kept. Deploy types and validators that accept it, then `adjourn retry RUN`.",
    "ToolChangedError": "The answer is kept. Deploy the earlier contract, or name the earlier version in "
    "`resumes_from`, then `adjourn retry RUN`.",
    "AskAwaitedError": "Write `answer = ctx.ask(...)` without `await`, deploy it, then `adjourn retry RUN`.",
    "ToolProcessError": "This attempt has not run the body. Correct what the message names, then `adjourn retry RUN`.",
    "BlockChangedError": "Deploy the earlier block, then `adjourn retry RUN`; or start a new run.",
    "LogMismatchError": FIX_AND_RETRY,
    "RouteUnavailableError": "Deploy a router that has the route and chooses it, then `adjourn retry RUN`.",
    "SelectorError": "Correct the selector: it returns the name of a route. Then `adjourn retry RUN`.",
    "ToolResolverError": "Correct the function that returns the agent's tools, then `adjourn retry RUN`.",
    "PromptError": "Correct the function that makes the prompt from the input, then start a new run.",
    "BlockFailedError": "Read the `outcome`: the step or tool at the root failed, or its call was declined.",
    "ChildFailedError": "Look at the child's run, which the message names. Then retry the root of the tree.",
    "ActionExpiredError": "Start a new run. To let the model continue instead, set `on_timeout` at the wait point.",
    "LimitExceededError": "Raise the limit in the agent, or retry with new `limits`.",
    "HistoryTooLargeError": "Continue on a new thread, or raise `max_history_bytes`.",
    "ModelRequestError": "Check the key, the model's name and the provider's status, then `adjourn retry RUN`.",
    "NewerTurnError": "Leave the run to workers of the newer build, or upgrade pydantic-ai in this one.",
    "DamagedRecordError": "Restore the row that the message names from a backup, then `adjourn retry RUN`.",
    "DriverFaultError": "Report it: this is a fault of Adjourn. `adjourn retry RUN` resumes where the run was.",
    "StatementRefusedError": "Read PostgreSQL's log, correct the cause, then `adjourn retry RUN`.",
    "PoisonedRunError": "Find what kills the process (memory, a native library), or use `own_process=True`. "
    "Then `adjourn retry RUN`.",
    # tools
    "ToolError": "Raise it, or a subclass, in a tool: the model reads the text as the result of its call.",
    "SuspendSwallowedError": "Do not catch `BaseException` around a wait. Wait for threads and tasks that ask.",
    "DetachedSuspendError": "Wait for the result of each thread or task that asks before the body returns.",
    "AskKeyMissingError": "Give each ask that runs side by side a `key`.",
    "ForeignContextError": "Use the context that this call was given. Do not keep a context in a global.",
    "RunOnceClashError": "Give each use of `run_once` a key of its own.",
    "AskInsideOnceError": "Ask before `run_once` or after it.",
    "ToolTimeoutError": "Raise the tool's `timeout`, or do less in one pass. Waiting for an answer does not count.",
    "ToolProcessEndedError": "Look at how it ended: SIGKILL is most often the kernel, out of memory.",
    "Refused": "Catch it around `ctx.ask` to handle every wait that ended without an answer.",
    "Declined": "Nothing, if the model may read the refusal. Catch it to do something else.",
    "AnswerFailed": "Nothing, if the model may read the message. Catch it to do something else.",
    "Expired": "Nothing, if the model may read it. Catch it to do something else, or raise the timeout.",
    # values
    "PayloadError": "Correct the value at the path that the message names.",
    "SuspendPayloadError": "Correct what the tool gives to `ask` or `suspend`. Nothing was opened.",
    "AnswerPayloadError": "Correct the answer and send it again. The action is still pending.",
    "ToolInputError": "Nothing: the model reads it and calls again.",
    "ToolOutputError": "Correct the tool or its return annotation. Its effects stand.",
    "RoundTripError": "Give a value that JSON can hold and return, or another type.",
    "MalformedJsonError": "Send one strict JSON document: no duplicate keys, no NaN, no NUL.",
    "TooLargeError": "Send less, or raise the limit that the message names.",
}
