"""The parser of requests: h11's, without what a proxy in front may read differently; pure."""

import re
from typing import Final

import h11

_HEAD_END: Final = b"\r\n\r\n"
_LF_ALONE: Final = re.compile(rb"(?<!\r)\n")
_MARKS_BYTES: Final = 4
"""Bytes of a header besides its name and value, and of a line besides its two words."""
_BAD_REQUEST: Final = 400


class RequestParser(h11.Connection):
    """h11's server, which refuses heads whose lines end by LF alone.

    RFC 9112 allows to accept them (section 2.2); a proxy that does not may take such a line
    for a part of a value and pass it on, with the request that it hides.

    Args:
        max_head_bytes: of a line and headers that are not complete.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._has_begun = False
        """Whether the lines of a head are being checked."""
        self._unchecked = b""
        """What has come of it since it was last checked, behind ``_n_checked`` bytes that
        were."""
        self._n_checked = 0

    def receive_data(self, data: bytes) -> None:
        """Take what has come; raises as h11's own."""
        super().receive_data(data)
        if self._has_begun:
            self._unchecked += data

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; raises and returns as h11's own.

        Raises:
            RemoteProtocolError: what was received is no request of HTTP/1.1.
        """
        if self.their_state is h11.IDLE:
            self._check_lines()
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._has_begun = False
        return event

    def _check_lines(self) -> None:
        """Check what has come of a head; each byte is looked at once."""
        if not self._has_begun:
            self._has_begun = True
            self._unchecked, _ = self.trailing_data
            self._n_checked = 0
        head, end, _ = self._unchecked.partition(_HEAD_END)
        if _LF_ALONE.search(head, self._n_checked):
            raise h11.RemoteProtocolError(
                "a line ends by LF alone", error_status_hint=_BAD_REQUEST
            )
        if not end:  # it may begin in what is kept
            self._unchecked = head[1 - len(_HEAD_END) :]
            self._n_checked = len(self._unchecked)


def head_bytes(request: h11.Request) -> int:
    """Count the bytes of a request's line and headers."""
    pairs = [(request.method, request.target), *request.headers]
    return sum(len(first) + len(last) + _MARKS_BYTES for first, last in pairs)
