"""The numbers that the system is run by, each with its reason. Settings may override them."""

from __future__ import annotations

from pydantic import Field

from adjourn.schemas.records.record import Record


class Tuning(Record):
    """Limits and times of one deployment."""

    lease_seconds: float = Field(default=60, gt=0)
    """How long a claim lasts without renewal: what a worker's death costs a run, at most, plus one sweep."""
    sweep_seconds: float = Field(default=5, gt=0)
    """How often each worker looks for what was forgotten; a deadline fires at most this late."""
    wakeup_retry_seconds: float = Field(default=30, gt=0)
    """Time after which a wake-up that nobody took is published again. Doubles each time, up to 20 times this."""
    build_seconds: float = Field(default=60, gt=0)
    """How long a build counts as live after the last sign of one of its workers: what a run that older builds cannot
    drive waits, at most, for a newer build that is gone."""
    suspect_deaths: int = Field(default=3, gt=0)
    """Deaths in a process of its own after which a run is poison."""
    max_answer_bytes: int = Field(default=1_000_000, gt=0)
    """Of a whole answer message, before it is parsed."""
    max_answer_depth: int = Field(default=64, gt=0)
    """Levels of nesting in an answer: more than any form needs, less than any parser fears."""
    max_message_bytes: int = Field(default=1_000_000, gt=0)
    """Of one user message; a longer one is refused at the start."""
    max_output_bytes: int = Field(default=1_000_000, gt=0)
    """Of one tool output, one suspend, one result of `run_once`; more becomes a tool error that names the limit."""
    max_history_bytes: int = Field(default=16_000_000, gt=0)
    """Of all items of a thread that a turn loads. An output that would lead over it becomes a tool error; over it
    no model is asked any more, and the run fails."""
    dead_letters_kept: int = Field(default=10_000, gt=0)
    """Refused messages kept for reading; the oldest go first."""
    dead_letter_bytes: int = Field(default=16_384, gt=0)
    """Of a refused message's body that are kept."""
    early_answers_per_action: int = Field(default=8, gt=0)
    """Answers kept for one action that is not open yet."""
    early_answers_kept: int = Field(default=10_000, gt=0)
    """Answers kept for all actions that are not open yet."""
    early_answer_days: float = Field(default=7, gt=0)
    """How long an answer is kept for an action that never opens."""
    verdict_seconds: float = Field(default=10, ge=0)
    """How long a client without the app waits for a worker to validate its answer; two sweeps, by default."""
    model_retries: int = Field(default=6, ge=0)
    """How often a run whose model could not be asked is queued again, after the retries of one turn are used up."""
    model_retry_seconds: float = Field(default=15, gt=0)
    """Before the first of them; doubles at each, so that six of them bridge a quarter of an hour without the model."""
    retention_days: float | None = Field(default=None, gt=0)
    """How long threads are kept after everything on them has ended; the sweep takes older ones away. None: for ever."""
    max_children: int = Field(default=2_000, gt=0)
    """Runs that one run may have started. A further one becomes a tool error that names the limit."""
    max_child_depth: int = Field(default=16, gt=0)
    """Levels of runs below a root: agents that start one another have no last one."""
    shutdown_seconds: float = Field(default=20, gt=0)
    """How long a stopping worker lets its turns finish before it puts them back."""
    tool_timeout_seconds: float | None = Field(default=None, gt=0)
    """Default execution limit of a tool body; waiting never counts."""
    parking_record_days: float = Field(default=7, gt=0)
    """How long Redis keeps a parking record; a missing one is read from Postgres again."""
