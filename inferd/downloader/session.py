"""Connections to servers: TLS alone, redirects by rule, failures by kind."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx2

from inferd import __version__
from inferd.limits.models import (
    PULL_ANSWER_S,
    PULL_CONNECT_S,
    PULL_MAX_REDIRECTS,
)
from inferd.models.pull.messages import FailureCode

_TIMEOUT: Final = httpx2.Timeout(PULL_ANSWER_S, connect=PULL_CONNECT_S)
_NOT_FOUND: Final = (404, 410)
_NOT_ALLOWED: Final = (401, 403)


class TaskError(Exception):
    """A task failed.

    Args:
        code: the kind of failure.
        detail: for the person who waits; parts of it may be the server's words.
    """

    def __init__(self, code: FailureCode, detail: str) -> None:
        super().__init__(detail)
        self.code: FailureCode = code


class Web:
    """The client of all tasks, and which hosts the current one may reach."""

    def __init__(self) -> None:
        self._home = ""
        self._is_pinned = False
        self.client = httpx2.Client(
            verify=ssl.create_default_context(),
            timeout=_TIMEOUT,
            follow_redirects=True,
            max_redirects=PULL_MAX_REDIRECTS,
            headers={"User-Agent": f"inferd/{__version__}"},
            event_hooks={"request": [self._check]},
        )

    @contextmanager
    def bound_to(self, url: str, *, is_pinned: bool) -> Iterator[None]:
        """Restrict requests to the host of an address, unless digests are known.

        What fails inside is raised as a ``TaskError``.
        """
        try:
            self._home, self._is_pinned = httpx2.URL(url).netloc.decode(), is_pinned
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise _task_error(error) from error

    def _check(self, request: httpx2.Request) -> None:
        """Refuse a request to where a redirect must not lead."""
        url = request.url
        if url.scheme != "https":
            raise TaskError("redirect", f"{url.scheme}://{url.host}, not encrypted")
        if not self._is_pinned and url.netloc.decode() != self._home:
            raise TaskError("redirect", f"another host, {url.host}")


def check_status(response: httpx2.Response) -> None:
    """Raise a ``TaskError`` for a response that is an error."""
    if response.is_success:
        return
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code in _NOT_FOUND:
        raise TaskError("not_found", status)
    if response.status_code in _NOT_ALLOWED:
        raise TaskError("not_allowed", status)
    raise TaskError("status", status)


_KINDS: Final[tuple[tuple[type[Exception], FailureCode], ...]] = (
    (httpx2.ConnectTimeout, "unreachable"),
    (httpx2.TimeoutException, "stalled"),
    (httpx2.ConnectError, "unreachable"),
    (httpx2.ProxyError, "unreachable"),
    (httpx2.UnsupportedProtocol, "unreachable"),
    (httpx2.NetworkError, "dropped"),
    (httpx2.RemoteProtocolError, "dropped"),
)
"""Kinds of failures of the client; the first that fits."""


def _task_error(error: Exception) -> TaskError:
    """Sort a failure of the client into those that people are told."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TaskError("certificate", cause.verify_message)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.TooManyRedirects):
        return TaskError("redirect", f"over {PULL_MAX_REDIRECTS} addresses in turn")
    codes = (code for kind, code in _KINDS if isinstance(error, kind))
    return TaskError(next(codes, "invalid"), str(error) or type(error).__name__)
