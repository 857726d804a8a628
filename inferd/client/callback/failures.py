"""The words in which failures are told, and the failures of answers."""

from typing import Final

from inferd.client.core.failures import ClientError

REFUSED: Final = "Connection refused"
TIMED_OUT: Final = "Request timed out"
UNREADABLE: Final = "Failed to parse response"
NO_MATCH: Final = "Response did not match schema"
INTERRUPTED: Final = "Stream interrupted"
CANCELLED: Final = "Request cancelled"
TOO_MANY: Final = "Too many requests in flight"


class AnswerError(Exception):
    """An answer that is an error, or none that can be read.

    Args:
        message: for the program's user.
        code: of the daemon or the server, if it refused.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.message = message
        self.code = code
        super().__init__(message)


class UnsendableError(AnswerError):
    """A request that cannot be written."""


def failure_of(error: Exception) -> AnswerError:
    """Return what a program is told of an exception."""
    match error:
        case AnswerError():
            return error
        case ClientError():
            text = str(error)
        case ConnectionRefusedError() | FileNotFoundError():
            text = REFUSED
        case TimeoutError():
            text = TIMED_OUT
        case OSError():
            text = INTERRUPTED
        case _:
            text = f"{type(error).__name__}: {error}"
    return AnswerError(text)
