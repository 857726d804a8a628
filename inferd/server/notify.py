"""Tell systemd how the service is: sd_notify's protocol, one datagram a message."""

import os
import socket
import time
from collections.abc import Mapping

import trio

from inferd.limits import LOAD_SILENCE_S
from inferd.wire.status import LifecycleFrame, StatusFrame

_MICROSECONDS = 1_000_000


class Notifier:
    """Speaks to the service manager, or to nobody where there is none.

    Args:
        environ: where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` stand.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        is_for_us = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._watchdog_us = int(environ.get("WATCHDOG_USEC", 0)) if is_for_us else 0

    def ready(self) -> None:
        """The sockets answer."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The configuration is read again; ``ready`` says that it is over."""
        now_us = time.monotonic_ns() // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """No new requests from here on."""
        self._send("STOPPING=1\nSTATUS=draining")

    def follow(self, frame: StatusFrame) -> None:
        """Say what is being done; while loading, ask for the time that it may take."""
        match frame:
            case LifecycleFrame(status="loading_model", phase=phase):
                extension = int(LOAD_SILENCE_S * _MICROSECONDS)
                self._send(f"STATUS=loading: {phase}\nEXTEND_TIMEOUT_USEC={extension}")
            case LifecycleFrame(status="restarting", backend=backend):
                self._send(f"STATUS=restarting {backend}")
            case LifecycleFrame(status="ready"):
                self._send("STATUS=ready")
            case _:
                pass

    async def feed_watchdog(self) -> None:
        """Say that the event loop still turns, twice as often as is asked for."""
        if not self._watchdog_us:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_us / _MICROSECONDS / 2)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, flags) as sock:
            try:
                sock.sendto(message.encode(), self._address)
            except OSError:
                return  # a manager that does not listen is not worth dying for
