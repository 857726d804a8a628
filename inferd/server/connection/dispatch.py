"""Dispatch requests to services and turn failures into error frames."""

import secrets
from typing import Protocol, TypeVar

import structlog
import trio

from inferd.errors import InferdError, InternalError
from inferd.server.connection.response_writer import PeerGoneError, ResponseWriter
from inferd.server.request_context import RequestContext

log = structlog.get_logger("server")

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")


class Service(Protocol[R_contra]):
    """The handler of a socket's requests."""

    async def answer(
        self, request: R_contra, reply: ResponseWriter, context: RequestContext
    ) -> None:
        """Serve one request up to its terminal frame, or raise before that frame."""


class RefusingService:
    """A service that refuses all requests.

    Args:
        error: raised for each request.
    """

    def __init__(self, error: InferdError) -> None:
        self._error = error

    async def answer(
        self,
        request: object,  # noqa: ARG002
        reply: ResponseWriter,  # noqa: ARG002
        context: RequestContext,  # noqa: ARG002
    ) -> None:
        """Refuse a request."""
        raise self._error


async def dispatch(
    service: Service[R], request: R, reply: ResponseWriter, context: RequestContext
) -> bool:
    """Answer one request with exactly one terminal frame.

    Returns:
        Whether the connection continues.

    Raises:
        PeerGoneError: the client does not read the answer.
    """
    try:
        await service.answer(request, reply, context)
    except InferdError as error:
        error.with_traceback(None)  # otherwise it and its frames form a cycle
        context.refused(error)
        await _finish(reply, error)
        return not error.closes_connection
    except (PeerGoneError, trio.Cancelled):
        context.abandoned()
        raise
    except Exception:  # a bug: the client gets a number, the log the details
        bug = InternalError(f"bug {secrets.token_hex(4)}, see the daemon's log")
        log.exception("request.crashed", bug=str(bug))
        context.refused(bug)
        await _finish(reply, bug)
    return True


async def _finish(reply: ResponseWriter, error: InferdError) -> None:
    """Send an error frame, or the rest of the terminal frame if there is one already."""
    if reply.is_over:
        await reply.finish()
    else:
        await reply.fail(error)
