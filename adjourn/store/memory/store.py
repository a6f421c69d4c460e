"""The store in memory: the acts of the modules beside this one, as `store.protocol` asks for them."""

from __future__ import annotations

from datetime import datetime

from adjourn.store.acts import Acts, act
from adjourn.store.memory import (
    actions,
    builds,
    children,
    dead_letters,
    early_answers,
    lost_waits,
    recovery,
    reopening,
    runs,
)
from adjourn.store.memory.tables import Memory


class MemoryRuns(Acts[Memory]):
    """Runs: how they start, what is read of them, and how they are ended from outside."""

    start = act(runs.start)
    get = act(runs.get)
    items = act(runs.items)
    items_to_show = act(runs.items_to_show)
    cancel = act(runs.cancel)
    close_orphan = act(runs.close_orphan)
    fail_damaged = act(runs.fail_damaged)
    record_death = act(runs.record_death)
    record_refusal = act(runs.record_refusal)
    list = act(runs.list_runs)


class MemoryClaims(Acts[Memory]):
    """Claims: who may write a run, and every durable step that is written under one."""

    claim = act(runs.claim)
    reload = act(runs.reload)
    renew = act(runs.renew)
    put_back = act(runs.put_back)
    write = act(runs.write)
    reopen = act(reopening.reopen)
    leave = act(builds.leave)


class MemoryChildren(Acts[Memory]):
    """Children: how the end of a run reaches its parent and the runs that it has started."""

    notify_parent = act(children.notify_parent)
    orphans = act(children.orphans)
    seq_of = act(children.seq_of)
    mark_propagated = act(children.mark_propagated)
    unpropagated = act(children.unpropagated)


class MemoryBuilds(Acts[Memory]):
    """Builds: which versions of the user's code are live, and what each may take."""

    register = act(builds.register)
    renew = act(builds.renew)
    is_outdated = act(builds.is_outdated)
    may_take = act(builds.may_take)
    left = act(builds.left)


class MemoryRecovery(Acts[Memory]):
    """Recovery: what the sweep finds that nobody else has seen to."""

    unsent = act(recovery.unsent)
    abandoned = act(recovery.abandoned)
    overdue = act(recovery.overdue)
    lost_waits = act(lost_waits.lost_waits)
    make_all_due = act(recovery.make_all_due)


class MemoryActions(Acts[Memory]):
    """Actions: the waits of runs, and the one answer that each takes."""

    answer = act(actions.answer)
    get = act(actions.get)
    find_by_request_id = act(actions.find_by_request_id)
    last_by_request_id = act(actions.last_by_request_id)
    newest_by_request_id = act(actions.newest_by_request_id)
    answered_by_request_id = act(actions.answered_by_request_id)
    pending = act(actions.pending)
    pending_after = act(actions.pending_after)
    asks_in = act(actions.asks_in)


class MemoryEarlyAnswers(Acts[Memory]):
    """Answers that came before their action was open, or that only a worker can validate."""

    keep = act(early_answers.keep)
    of_action = act(early_answers.of_action)
    for_open_actions = act(early_answers.for_open_actions)
    drop = act(early_answers.drop)
    conclude = act(early_answers.conclude)
    receipt = act(early_answers.receipt)
    prune = act(early_answers.prune)


class MemoryDeadLetters(Acts[Memory]):
    """Messages that were refused, stored for people to read."""

    add = act(dead_letters.add)
    prune = act(dead_letters.prune)
    list = act(dead_letters.list)


class MemoryStore:
    """A `store.protocol.RunStore` in memory."""

    def __init__(self, db: Memory) -> None:
        self.db = db
        self.runs = MemoryRuns(db)
        self.claims = MemoryClaims(db)
        self.children = MemoryChildren(db)
        self.builds = MemoryBuilds(db)
        self.recovery = MemoryRecovery(db)
        self.actions = MemoryActions(db)
        self.early_answers = MemoryEarlyAnswers(db)
        self.dead_letters = MemoryDeadLetters(db)

    def clock(self) -> datetime:
        """The time, by the one clock that all workers share."""
        return self.db.clock()

    def signing_key(self) -> bytes:
        """The key that action ids and credentials of this store are signed with."""
        return self.db.signing_key()

    def ping(self) -> None:
        """Return if the store answers."""
        self.db.ping()

    def close(self) -> None:
        """Close its connections."""
        self.db.dispose()
