"""The store in PostgreSQL: the acts of the modules beside this one, as `store.protocol` asks for them."""

from __future__ import annotations

from datetime import datetime

from adjourn.store.acts import Acts, act
from adjourn.store.postgres.answers import actions, dead_letters, early_answers
from adjourn.store.postgres.database import Database
from adjourn.store.postgres.runs import (
    builds,
    children,
    claims,
    endings,
    forks,
    lost_waits,
    recovery,
    reopening,
    retries,
    starts,
    writes,
)
from adjourn.store.postgres.threads import conversations, histories, retention, streams


class PostgresRuns(Acts[Database]):
    """Runs: how they start, what is read of them, and how they are ended from outside."""

    start = act(starts.start)
    get = act(starts.get)
    items = act(starts.items)
    items_to_show = act(starts.items_to_show)
    cancel = act(endings.cancel)
    close_orphan = act(endings.close_orphan)
    fail_damaged = act(endings.fail_damaged)
    record_death = act(endings.record_death)
    record_refusal = act(endings.record_refusal)
    list = act(starts.list)


class PostgresClaims(Acts[Database]):
    """Claims: who may write a run, and every durable step that is written under one."""

    claim = act(claims.claim)
    reload = act(claims.reload)
    renew = act(claims.renew)
    put_back = act(claims.put_back)
    write = act(writes.write)
    reopen = act(reopening.reopen)
    leave = act(builds.leave)


class PostgresChildren(Acts[Database]):
    """Children: how the end of a run reaches its parent and the runs that it has started."""

    notify_parent = act(children.notify_parent)
    orphans = act(children.orphans)
    seq_of = act(children.seq_of)
    mark_propagated = act(children.mark_propagated)
    unpropagated = act(children.unpropagated)


class PostgresBuilds(Acts[Database]):
    """Builds: which versions of the user's code are live, and what each may take."""

    register = act(builds.register)
    renew = act(builds.renew)
    is_outdated = act(builds.is_outdated)
    may_take = act(builds.may_take)
    left = act(builds.left)


class PostgresRecovery(Acts[Database]):
    """Recovery: what the sweep finds that nobody else has seen to."""

    unsent = act(recovery.unsent)
    abandoned = act(recovery.abandoned)
    overdue = act(recovery.overdue)
    lost_waits = act(lost_waits.lost_waits)
    make_all_due = act(recovery.make_all_due)


class PostgresActions(Acts[Database]):
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


class PostgresEarlyAnswers(Acts[Database]):
    """Answers that came before their action was open, or that only a worker can validate."""

    keep = act(early_answers.keep)
    of_action = act(early_answers.of_action)
    for_open_actions = act(early_answers.for_open_actions)
    drop = act(early_answers.drop)
    conclude = act(early_answers.conclude)
    receipt = act(early_answers.receipt)
    prune = act(early_answers.prune)


class PostgresRetries(Acts[Database]):
    """Retries: failed runs that continue where they were."""

    retry = act(retries.retry)


class PostgresThreads(Acts[Database]):
    """Threads: what is read of a conversation, and how one is forked."""

    snapshot = act(conversations.snapshot)
    look = act(conversations.look)
    fork = act(forks.fork)
    list = act(conversations.list)


class PostgresHistories(Acts[Database]):
    """Histories: a run with everything that is recorded of it."""

    of_run = act(histories.of_run)
    unfinished = act(histories.unfinished)


class PostgresStreams(Acts[Database]):
    """Streams: what a viewer reads of a thread, from a place on."""

    read = act(streams.read)
    below = act(streams.below)
    extent = act(streams.extent)


class PostgresArchive(Acts[Database]):
    """The archive: threads that have ended long ago, read out whole and deleted."""

    old = act(retention.old)
    read = act(retention.read)
    delete = act(retention.delete)


class PostgresDeadLetters(Acts[Database]):
    """Messages that were refused, stored for people to read."""

    add = act(dead_letters.add)
    prune = act(dead_letters.prune)
    list = act(dead_letters.list)


class PostgresStore:
    """A `store.protocol.Store` in PostgreSQL."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.runs = PostgresRuns(db)
        self.claims = PostgresClaims(db)
        self.children = PostgresChildren(db)
        self.builds = PostgresBuilds(db)
        self.recovery = PostgresRecovery(db)
        self.actions = PostgresActions(db)
        self.early_answers = PostgresEarlyAnswers(db)
        self.dead_letters = PostgresDeadLetters(db)
        self.retries = PostgresRetries(db)
        self.threads = PostgresThreads(db)
        self.histories = PostgresHistories(db)
        self.streams = PostgresStreams(db)
        self.archive = PostgresArchive(db)

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
