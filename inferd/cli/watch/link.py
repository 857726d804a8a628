"""A connection to the admin socket that asks again and again, and comes back by itself."""

import socket
from contextlib import ExitStack
from pathlib import Path

from msgspec import UNSET

from inferd.cli.connect import ADMIN_TIMEOUT_S
from inferd.cli.console import CommandError
from inferd.cli.unreachable import refuse_stopped
from inferd.client.admin import AdminExchange
from inferd.client.connection.sync import connect
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError, ConnectionLostError
from inferd.limits.connections import READ_BYTES
from inferd.surfaces import ADMIN
from inferd.wire.commands import Command, Reply
from inferd.wire.observed import Overview


class OverviewLink:
    """Asks the daemon for overviews, on one connection for as long as that lasts.

    Args:
        directory: of the sockets; ``None`` for the default ones.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._sock: socket.socket | None = None
        self._stack = ExitStack()
        self._exchange: AdminExchange | None = None
        self._asked_at = 0.0
        self.fault = ""
        """Why there is no answer; empty while there are answers."""

    @property
    def sock(self) -> socket.socket | None:
        """What becomes readable once there is something to receive."""
        return self._sock

    def close(self) -> None:
        """End the connection; the next question opens another one."""
        self._sock = self._exchange = None
        self._stack.close()

    def ask(self, now: float) -> None:
        """Ask for an overview, unless one has been asked for and is still to come.

        Args:
            now: seconds on a clock that only goes forward.
        """
        if self._exchange is not None:
            if now - self._asked_at > ADMIN_TIMEOUT_S:
                self._fail(f"no reply within {ADMIN_TIMEOUT_S:g} s")
            return
        exchange = AdminExchange(Command(command="top"))
        try:
            if self._sock is None:
                refuse_stopped(self._directory)
                self._sock = self._stack.enter_context(
                    connect(ADMIN.socket, self._directory)
                )
                self._sock.settimeout(ADMIN_TIMEOUT_S)
            self._sock.sendall(exchange.line)
        except (NoDaemonError, ClientError, CommandError, OSError) as error:
            self._fail(str(error))
        else:
            self._exchange, self._asked_at = exchange, now

    def receive(self) -> Overview | None:
        """Receive what has come; return the overview once it is complete."""
        try:
            reply = self._receive_reply()
        except (ClientError, OSError) as error:
            self._fail(str(error))
            return None
        if reply is None:
            return None
        self._exchange = None
        if reply.overview is UNSET:
            self._fail("no such command" if reply.error is UNSET else reply.error)
            return None
        self.fault = ""
        return reply.overview

    def _receive_reply(self) -> Reply | None:
        """Receive what has come; changes of the status are left out.

        Raises:
            ClientError: the connection has ended.
            OSError: it failed.
        """
        assert self._sock is not None  # noqa: S101  # the caller waited for it
        data = self._sock.recv(READ_BYTES)
        if self._exchange is not None:
            return self._exchange.feed(data)
        if not data:
            raise ConnectionLostError("the daemon closed the connection")
        return None

    def _fail(self, fault: str) -> None:
        self.fault = fault
        self.close()
