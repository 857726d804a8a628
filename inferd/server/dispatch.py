"""A request to its service; a failure to its error frame. The only place for either."""

import secrets
from typing import Protocol, TypeVar

import structlog
import trio

from inferd.errors import InferdError, InternalError
from inferd.server.activity import Activity
from inferd.server.reply import PeerGoneError, Reply

log = structlog.get_logger("server")

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")


class Service(Protocol[R_contra]):
    """What a surface does with its requests."""

    async def answer(self, request: R_contra, reply: Reply, activity: Activity) -> None:
        """Serve one request to its terminal frame, or raise before it."""


class Refusal:
    """Serves nobody.

    Args:
        error: why.
    """

    def __init__(self, error: InferdError) -> None:
        self._error = error

    async def answer(
        self,
        request: object,  # noqa: ARG002
        reply: Reply,  # noqa: ARG002
        activity: Activity,  # noqa: ARG002
    ) -> None:
        """Refuse a request, whatever it is."""
        raise self._error


async def dispatch(
    service: Service[R], request: R, reply: Reply, activity: Activity
) -> bool:
    """Answer one request with exactly one terminal frame.

    Returns:
        Whether the connection goes on.

    Raises:
        PeerGoneError: nobody reads the answer.
    """
    try:
        await service.answer(request, reply, activity)
    except InferdError as error:
        error.with_traceback(None)  # else it and its frames hold each other
        activity.refused(error)
        await _end(reply, error)
        return not error.closes_connection
    except (PeerGoneError, trio.Cancelled):
        activity.abandoned()
        raise
    except Exception:  # a bug: the client gets a number, the log gets the rest
        bug = InternalError(f"bug {secrets.token_hex(4)}, see the daemon's log")
        log.exception("request.crashed", bug=str(bug))
        activity.refused(bug)
        await _end(reply, bug)
    return True


async def _end(reply: Reply, error: InferdError) -> None:
    """Fail a request, or write the rest of the terminal frame that it has."""
    if reply.is_over:
        await reply.finish()
    else:
        await reply.fail(error)
