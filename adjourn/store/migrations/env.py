"""Alembic's entry: runs the migrations on the connection that `upgrade` has opened and locked."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table_schema="adjourn")
context.run_migrations()
