"""Run revisions on the connection that the caller has given, within its transaction."""

from alembic import context
from sqlalchemy import Connection

_connection = context.config.attributes["connection"]
assert isinstance(_connection, Connection)  # noqa: S101  # ``schema`` puts it there
context.configure(connection=_connection, transactional_ddl=False)
context.run_migrations()
