"""Notice that a peer has disconnected without reading from its socket.

A half-closed peer still reads its answer, and may have sent more requests, so neither EOF
nor unread bytes tell. An epoll set that requests no events of a socket still reports
``EPOLLHUP``, which the kernel sets only when both directions are shut down.
"""

import select

import trio

from inferd.limits.server import DISCONNECTS_PER_PASS


class DisconnectWatch:
    """Watches all connections with one epoll set."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._waiters: dict[int, trio.Event] = {}

    async def run(self) -> None:
        """Wake waiters on disconnects, a batch in each event loop pass, until cancelled."""
        with self._epoll:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for fd, _ in self._epoll.poll(0, DISCONNECTS_PER_PASS):
                    self._epoll.unregister(fd)  # or it would be reported again
                    self._waiters.pop(fd).set()

    async def wait(self, stream: trio.SocketStream) -> None:
        """Wait until the peer has closed both directions of the connection.

        Cancellation: safe. At most one task may wait for a stream, and not after the stream
        is closed.
        """
        fd = stream.socket.fileno()
        disconnected = self._waiters[fd] = trio.Event()
        self._epoll.register(fd, 0)
        try:
            await disconnected.wait()
        finally:
            if self._waiters.pop(fd, None) is not None and not self._epoll.closed:
                self._epoll.unregister(fd)
