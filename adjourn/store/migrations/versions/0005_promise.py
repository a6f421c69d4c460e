"""What answers, waits and deploys need so that an accepted answer always takes effect.

Each group of statements is of one capability; they do not depend on each other.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Builds that run this deployment, newest last, and runs that wait for a newer one.
BUILDS: tuple[str, ...] = (
    "create sequence adjourn.build_places",
    """
    create table adjourn.builds (
        id text collate "C" primary key, place bigint not null, live_until timestamptz not null
    )
    """,
    "create index builds_order on adjourn.builds (place)",
    # The place of the newest build that could not drive the run: it, and those before it, leave the run to later ones.
    "alter table adjourn.runs add column newer_than bigint",
    """
    create index runs_left on adjourn.runs (wakeup_at)
    where status = 'queued' and due is not null and newer_than is not null
    """,
)
# How an answer came in, and what it said beside its value.
ANSWERS: tuple[str, ...] = (
    "alter table adjourn.actions add column channel text",
    # How a kept answer came in, whether its sender waits for the verdict, and the verdict.
    """
    alter table adjourn.early_answers
        add column channel text, add column awaited boolean not null default false, add column receipt text
    """,
)
# Waits of which the first answer closes the others.
FIRST_ANSWER: tuple[str, ...] = (
    # The waits of one `ask_any`, and the wait whose answer closed this one.
    'alter table adjourn.actions add column any_of text, add column closed_by text collate "C"',
    "create index actions_any_of on adjourn.actions (any_of) where any_of is not null",
)
# Children that a retry of their root revives.
REVIVED: tuple[str, ...] = ()

# Reads of stored JSON that must not fail a statement because one row of it is damaged.
DAMAGE: tuple[str, ...] = (
    """
    create function adjourn.json_or_null(document text) returns json
    language plpgsql immutable parallel safe strict
    as $$ begin return document::json; exception when others then return null; end $$
    """,
)

DROPS: tuple[str, ...] = (
    "drop index adjourn.runs_left",
    "alter table adjourn.runs drop column newer_than",
    "drop table adjourn.builds",
    "drop sequence adjourn.build_places",
    "drop function adjourn.json_or_null(text)",
    "alter table adjourn.early_answers drop column channel, drop column awaited, drop column receipt",
    "drop index adjourn.actions_any_of",
    "alter table adjourn.actions drop column channel, drop column any_of, drop column closed_by",
)


def upgrade() -> None:
    for statement in (*BUILDS, *ANSWERS, *FIRST_ANSWER, *REVIVED, *DAMAGE):
        op.execute(statement)


def downgrade() -> None:
    for statement in DROPS:
        op.execute(statement)
