"""The bridges that generate answers: who runs, and whose answers nobody generates any more."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select, update

from inferd.chats.records import UNFINISHED
from inferd.chats.storage.messages import end_unfinished
from inferd.chats.storage.tables import MESSAGES, RUNNERS


def begin_running(connection: Connection, runner: str, now_us: int) -> Sequence[str]:
    """Note that a bridge has started; return the answers that its last run left.

    A bridge has the same name again after it was killed, and nobody else has it then.
    """
    left = end_unfinished(connection, [runner])
    keep_running(connection, runner, now_us)
    return left


def keep_running(connection: Connection, runner: str, now_us: int) -> None:
    """Note that a bridge runs."""
    changed = connection.execute(
        update(RUNNERS).where(RUNNERS.c.id == runner).values(seen_us=now_us)
    )
    if changed.rowcount == 0:
        connection.execute(insert(RUNNERS).values(id=runner, seen_us=now_us))


def end_running(connection: Connection, runner: str) -> None:
    """Note that a bridge ends; what it still generates is aborted."""
    end_unfinished(connection, [runner])
    connection.execute(delete(RUNNERS).where(RUNNERS.c.id == runner))


def end_dead(connection: Connection, before_us: int) -> Sequence[str]:
    """Abort what bridges left that have not been seen since a moment; return the ids."""
    alive = select(RUNNERS.c.id).where(RUNNERS.c.seen_us >= before_us)
    found = select(MESSAGES.c.runner).where(
        MESSAGES.c.state.in_(UNFINISHED), MESSAGES.c.runner.notin_(alive)
    )
    dead = [name for name in connection.execute(found.distinct()).scalars() if name]
    ids = end_unfinished(connection, dead) if dead else []
    connection.execute(delete(RUNNERS).where(RUNNERS.c.seen_us < before_us))
    return ids
