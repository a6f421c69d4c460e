"""Runs that other runs have started: sub-agents.

A child is what a wait of its parent waits for. `unsettled` is of a run that has ended: its parent, or its
children, have yet to be told. `child_groups` counts the open children of one response, so that the last
of them to end, and no other, wakes the parent.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    alter table adjourn.runs
        add column parent_run_id text collate "C",
        add column depth integer not null default 0,
        add column root_thread_id text collate "C",
        add column path text,
        add column unsettled boolean not null default false
    """,
    """
    alter table adjourn.actions
        add column child_run_id text collate "C",
        add column child_group text
    """,
    """
    create table adjourn.child_groups (
        run_id text collate "C" not null,
        name text not null,
        open integer not null,
        primary key (run_id, name)
    )
    """,
    "create index runs_children on adjourn.runs (parent_run_id) where parent_run_id is not null",
    "create index runs_unsettled on adjourn.runs (updated_at) where unsettled",
    "create index actions_child on adjourn.actions (child_run_id) where child_run_id is not null",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("drop table adjourn.child_groups")
    op.execute("alter table adjourn.actions drop column child_run_id, drop column child_group")
    op.execute(
        "alter table adjourn.runs drop column parent_run_id, drop column depth, drop column root_thread_id, "
        "drop column path, drop column unsettled"
    )
