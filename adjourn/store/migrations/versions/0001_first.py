"""The first schema: threads, runs, child groups, items, actions, early answers, dead letters, builds, meta, the clock.

What holds for all tables:

- `adjourn.adjourn_now()` is the only clock. A test that moves time replaces the function.
- Ids are compared by bytes (`collate "C"`): they are looked up and sorted, never read by people.
- JSON that no statement looks into is `text`. `jsonb` would refuse `\\u0000`, reorder keys and
  cost a parse at every write.
- There are no foreign keys. A child row is only ever inserted from the parent's row, locked and
  returned in the same statement; a trigger would look that row up and lock it once more.
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CLOCK = """
create function adjourn.adjourn_now() returns timestamptz
language sql volatile parallel safe
return clock_timestamp()
"""

THREADS = """
create table adjourn.threads (
    id text collate "C" primary key,
    created_at timestamptz not null,
    last_ordinal integer not null
)
"""

THREADS_INDEX = "create index threads_age on adjourn.threads (created_at, id)"

# `due` says which queue a run belongs on until it ends; a queued run without one waits behind
# another run of its thread. `retry_at` is until when the models that could not be asked are not asked again.
# `newer_than` is the place of the newest build that could not drive the run: it leaves the run to later ones.
# `unpropagated` is set while the parent or the children of an ended run have yet to be notified.
# The fill factor leaves room for HOT updates: appends touch no index.
RUNS = """
create table adjourn.runs (
    id text collate "C" primary key,
    thread_id text collate "C" not null,
    ordinal integer not null,
    agent text not null,
    status text not null check (status in ('queued', 'running', 'parked', 'completed', 'failed', 'cancelled')),
    due text check (due in ('turn', 'reentry', 'suspect')),
    due_at timestamptz not null,
    wakeup_at timestamptz not null,
    wakeups integer not null default 0,
    token text collate "C",
    lease_until timestamptz,
    revision bigint not null default 0,
    seq integer not null,
    deaths integer not null default 0,
    input_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    requests bigint not null default 0,
    turns integer not null default 0,
    tool_calls integer not null default 0,
    cost numeric not null default 0,
    seconds double precision not null default 0,
    claimed_at timestamptz,
    retry_at timestamptz,
    newer_than bigint,
    parent_run_id text collate "C",
    depth integer not null default 0,
    root_thread_id text collate "C",
    path text,
    unpropagated boolean not null default false,
    limits text,
    output text,
    error text,
    state_version integer not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    constraint runs_order unique (thread_id, ordinal),
    constraint runs_held check ((status = 'running') = (token is not null and lease_until is not null)),
    constraint runs_waiting check (due is not null or status not in ('running', 'parked'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)
"""

RUNS_INDEXES = (
    # The rule that a thread has one active run, where no race can get round it.
    """
    create unique index runs_active on adjourn.runs (thread_id)
    where status in ('queued', 'running', 'parked') and due is not null
    """,
    # What waits behind another run: small, and searched whole by the sweep.
    "create index runs_behind on adjourn.runs (thread_id, ordinal) where status = 'queued' and due is null",
    "create index runs_unsent on adjourn.runs (wakeup_at) where status = 'queued' and due is not null",
    "create index runs_leases on adjourn.runs (lease_until) where status = 'running'",
    """
    create index runs_left on adjourn.runs (wakeup_at)
    where status = 'queued' and due is not null and newer_than is not null
    """,
    "create index runs_children on adjourn.runs (parent_run_id) where parent_run_id is not null",
    "create index runs_unsettled on adjourn.runs (updated_at) where unpropagated",
)

# The open children of one response: the last of them to end, and no other, wakes the parent.
CHILD_GROUPS = """
create table adjourn.child_groups (
    run_id text collate "C" not null,
    name text not null,
    open integer not null,
    primary key (run_id, name)
)
"""

ITEMS = """
create table adjourn.items (
    run_id text collate "C" not null,
    seq integer not null,
    at timestamptz not null,
    kind text not null,
    body text not null,
    primary key (run_id, seq)
)
"""

# `asked` is the whole of what was opened and never changes; beside it stand the columns that
# statements look at, and how the action ended. `any_of` names the waits of one `ask_any`, `closed_by` the wait
# whose answer closed this one.
ACTIONS = """
create table adjourn.actions (
    id text collate "C" primary key,
    run_id text collate "C" not null,
    thread_id text collate "C" not null,
    call_id text not null,
    name text not null,
    request_id text,
    asked text not null,
    on_timeout text not null,
    default_resume text,
    status text not null check (status in ('pending', 'submitted', 'cancelled', 'failed', 'expired')),
    opened_at timestamptz not null,
    expires_at timestamptz,
    resolved_at timestamptz,
    resume text,
    reason text,
    message text,
    answered_by text,
    answer_id text,
    answer_digest text,
    channel text,
    child_run_id text collate "C",
    child_group text,
    any_of text,
    closed_by text collate "C",
    constraint actions_resolved check ((status = 'pending') = (resolved_at is null))
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)
"""

ACTIONS_INDEXES = (
    "create index actions_run on adjourn.actions (run_id)",
    "create index actions_pending on adjourn.actions (opened_at, id) where status = 'pending'",
    """
    create index actions_deadlines on adjourn.actions (expires_at)
    where status = 'pending' and expires_at is not null
    """,
    """
    create index actions_requests on adjourn.actions (request_id)
    where status = 'pending' and request_id is not null
    """,
    "create index actions_requested on adjourn.actions (request_id, opened_at) where request_id is not null",
    "create index actions_child on adjourn.actions (child_run_id) where child_run_id is not null",
    "create index actions_any_of on adjourn.actions (any_of) where any_of is not null",
)

# `awaited` is set while the sender waits for the receipt.
EARLY_ANSWERS = """
create table adjourn.early_answers (
    id bigint generated always as identity primary key,
    action_id text collate "C" not null,
    body text not null,
    answered_by text,
    received_at timestamptz not null,
    channel text,
    awaited boolean not null default false,
    receipt text
)
"""

EARLY_ANSWERS_INDEX = "create index early_answers_action on adjourn.early_answers (action_id)"

DEAD_LETTERS = """
create table adjourn.dead_letters (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    channel text not null,
    status text not null,
    detail text not null,
    action_id text,
    body bytea not null,
    issues text not null
)
"""

# Builds of the user's code that run this deployment, newest last.
BUILDS = (
    "create sequence adjourn.build_places",
    """
    create table adjourn.builds (
        id text collate "C" primary key, place bigint not null, live_until timestamptz not null
    )
    """,
    "create index builds_order on adjourn.builds (place)",
)

# Reads of stored JSON that must not fail a statement because one row of it is damaged.
JSON_OR_NULL = """
create function adjourn.json_or_null(document text) returns json
language plpgsql immutable parallel safe strict
as $$ begin return document::json; exception when others then return null; end $$
"""

META = "create table adjourn.meta (key text primary key, value text not null)"

SIGNING_KEY = sa.text("insert into adjourn.meta (key, value) values ('signing_key', :key)")
KEY_BYTES = 32


def upgrade() -> None:
    runs = (THREADS, THREADS_INDEX, RUNS, *RUNS_INDEXES, CHILD_GROUPS, ITEMS, *BUILDS)
    answers = (ACTIONS, *ACTIONS_INDEXES, EARLY_ANSWERS, EARLY_ANSWERS_INDEX, DEAD_LETTERS)
    for statement in (CLOCK, JSON_OR_NULL, *runs, *answers, META):
        op.execute(statement)
    # Made here, once per database, so that every process signs action ids alike with nothing to configure.
    op.execute(SIGNING_KEY.bindparams(key=secrets.token_hex(KEY_BYTES)))


def downgrade() -> None:
    tables = ("meta", "builds", "dead_letters", "early_answers", "actions", "items", "child_groups", "runs", "threads")
    for table in tables:
        op.execute(f"drop table adjourn.{table}")
    op.execute("drop sequence adjourn.build_places")
    op.execute("drop function adjourn.json_or_null(text), adjourn.adjourn_now()")
