"""What limits of cost and of time in hand are counted by.

A worker of the version before does not fill these columns: a run that it holds has no `claimed_at`,
and the time that it holds it does not count.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Of a database that was made while these stood in 0001, for a few commits of the main branch, they are there.
COLUMNS = (
    "alter table adjourn.runs add column if not exists claimed_at timestamptz",
    "alter table adjourn.runs add column if not exists cost numeric not null default 0",
    "alter table adjourn.runs add column if not exists seconds double precision not null default 0",
)


def upgrade() -> None:
    for statement in COLUMNS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("alter table adjourn.runs drop column claimed_at, drop column cost, drop column seconds")
