"""The revisions of the schema: checked, upgraded and rolled back through alembic."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect

from inferd.chats.failures import ChatError, ChatFault

REVISIONS: Final = ("0001", "0002", "0003", "0004")
"""In their order; the last is the one of this version."""
HEAD: Final = REVISIONS[-1]


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the database; ``None`` if it has none."""
    return MigrationContext.configure(connection).get_current_revision()


def is_empty(connection: Connection) -> bool:
    """Tell whether the database has neither a revision nor tables of chats."""
    return current_revision(connection) is None and not inspect(connection).has_table(
        "chats"
    )


def check_schema(connection: Connection) -> None:
    """Check that the schema is the one that this version knows.

    Raises:
        ChatError: it is older or newer.
    """
    found = current_revision(connection)
    if found == HEAD:
        return
    if found is None or found in REVISIONS:
        raise ChatError(
            ChatFault.OLDER,
            f"the database of chats has revision {found}, and this version needs {HEAD}: "
            "inferd chats upgrade",
        )
    raise ChatError(
        ChatFault.NEWER,
        f"the database of chats has revision {found[:32]}, which this version does not know: "
        "install the version that wrote it, and there: inferd chats rollback",
    )


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Bring the database to a later revision, within the transaction."""
    command.upgrade(_config(connection), revision)


def roll_back(connection: Connection, revision: str) -> None:
    """Bring the database back to an earlier revision, within the transaction."""
    command.downgrade(_config(connection), revision)


def move(connection: Connection, revision: str, *, is_upgrade: bool) -> None:
    """Bring the database to another revision, or leave it where it is there already.

    Raises:
        ChatError: its revision is not known, or is in the other direction.
    """
    found = current_revision(connection)
    if found not in REVISIONS:
        check_schema(connection)
        return
    if is_upgrade and found <= revision:
        upgrade(connection, revision)
    elif not is_upgrade and found >= revision:
        roll_back(connection, revision)
    else:
        raise ChatError(ChatFault.INVALID, f"the database has revision {found}")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).parent / "migrations").replace("%", "%%")
    )
    config.attributes["connection"] = connection
    return config
