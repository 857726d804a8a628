"""Notice that a peer is gone without reading what it sent.

A half-closed peer still reads its answer, and may have sent more requests, so neither the
end of its stream nor unread bytes say anything. An epoll set that asks for no event of a
socket still reports its hang-up, and that is the kernel's word that both ways are shut.
"""

import select

import trio

from inferd.server.limits import HANGUPS_A_PASS


class Hangups:
    """Watches every connection with one epoll set."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._gone: dict[int, trio.Event] = {}

    async def run(self) -> None:
        """Report hang-ups, some in each pass of the event loop, until cancelled."""
        with self._epoll:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for fd, _ in self._epoll.poll(0, HANGUPS_A_PASS):
                    self._epoll.unregister(fd)  # or it would be reported for ever
                    self._gone.pop(fd).set()

    async def wait(self, stream: trio.SocketStream) -> None:
        """Wait until the peer has closed the connection whole.

        Cancellation: safe; call it at most once at a time for each stream, and not after
        the stream is closed.
        """
        fd = stream.socket.fileno()
        gone = self._gone[fd] = trio.Event()
        self._epoll.register(fd, 0)
        try:
            await gone.wait()
        finally:
            if self._gone.pop(fd, None) is not None and not self._epoll.closed:
                self._epoll.unregister(fd)
