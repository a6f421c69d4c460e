"""Runs whose models are left alone for a while.

`retry_at` is until when the models that could not be asked are not asked again. A run that is due only then is
due at once when something else happens to it.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table adjourn.runs add column retry_at timestamptz")


def downgrade() -> None:
    op.execute("alter table adjourn.runs drop column retry_at")
