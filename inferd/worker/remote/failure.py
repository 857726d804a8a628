"""Failures of remote engines, as their clients are told."""

from typing import Final

from inferd.config.kinds.remote_limits import MAX_REASON_CHARS
from inferd.ipc.worker import Failed, Overflow

NO_KEY: Final = "(key)"
"""What stands in a text in place of the key."""


class RemoteError(Exception):
    """A request to a remote engine failed; the text is for the client.

    Args:
        reason: one line, which may quote the remote.
        by_request: whether the request is the cause, and not the remote.
        retry_after_ms: milliseconds after which the remote may serve it, by its own word.
        overflow: set if the request does not fit into its context.
        is_limit: whether the remote is in order, and only answers no more for now.
        is_configuration: whether the remote is in order, and what is configured for it is not.
    """

    def __init__(  # noqa: PLR0913  # what is to be told apart
        self,
        reason: str,
        *,
        by_request: bool = False,
        retry_after_ms: int | None = None,
        overflow: Overflow | None = None,
        is_limit: bool = False,
        is_configuration: bool = False,
    ) -> None:
        super().__init__(reason)
        self.by_request = by_request or overflow is not None
        self.retry_after_ms = retry_after_ms
        self.overflow = overflow
        self.counts = not (self.by_request or is_limit or is_configuration)
        """Whether the breaker counts it."""

    def message(self, ticket: int, key: str = "") -> Failed:
        """Make the message of a job that failed so, without the key, and not too long.

        It is cut last: a key at the cut would not be found.
        """
        reason = str(self).replace(key, NO_KEY) if key else str(self)
        if len(reason) > MAX_REASON_CHARS:
            reason = f"{reason[: MAX_REASON_CHARS - 1]}…"
        return Failed(
            ticket=ticket,
            reason=reason,
            by_request=self.by_request,
            is_unavailable=not self.by_request,
            retry_after_ms=self.retry_after_ms,
            overflow=self.overflow,
        )


def quote(text: str) -> str:
    """Quote what a remote said: one line of printable characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
