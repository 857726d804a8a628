"""What an error of the database means to those who asked."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from inferd.chats.failures import ChatError, ChatFault

_LOCKED = ("locked", "lock timeout", "deadlock", "busy")
_FULL = ("is full", "no space left", "could not extend")


@contextmanager
def telling_failures() -> Iterator[None]:
    """Turn errors of the database into failures of chats, without its statements.

    Raises:
        ChatError: the database is locked, full or cannot be used.
    """
    try:
        yield
    except DBAPIError as error:
        raise _failure_of(str(error.orig)) from error
    except sqlite3.Error as error:  # of what is asked without SQLAlchemy
        raise _failure_of(str(error)) from error
    except SQLAlchemyError as error:
        raise _failure_of(type(error).__name__) from error
    except OSError as error:
        raise _failure_of(error.strerror or type(error).__name__) from error


def _failure_of(text: str) -> ChatError:
    words = text.partition("\n")[0]
    if any(each in words.lower() for each in _LOCKED):
        return ChatError(
            ChatFault.LOCKED, "the database of chats is locked; try again in a moment"
        )
    if any(each in words.lower() for each in _FULL):
        return ChatError(
            ChatFault.FULL, "the database of chats is full: nothing was stored"
        )
    return ChatError(
        ChatFault.GONE, f"the database of chats cannot be used: {words[:200]}"
    )
