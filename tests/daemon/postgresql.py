"""Debian's PostgreSQL without a network, which can be killed and started again."""

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.daemon.harness import PATIENCE_S, eventually

OPEN: Final = "/tmp"  # noqa: S108  # the folder in it has a name that is drawn
"""Where the server's user may enter folders; those of a test may be closed to it."""
PORT: Final = "5499"
"""Names the socket in the server's folder; no address has it."""


class PostgresqlServer:
    """A server.

    Args:
        folder: of its files and its socket, which its user may enter.
    """

    def __init__(self, folder: Path) -> None:
        [self._programs, *_] = sorted(
            Path("/usr/lib/postgresql").glob("*/bin"), reverse=True
        )
        self._folder = folder
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        self._as_user: Any = {
            "user": user.pw_uid,
            "group": user.pw_gid,
            "extra_groups": [],
            "cwd": folder,
        }
        self._server: subprocess.Popen[bytes] | None = None
        words = ["-D", self._data, "-A", "trust", "-U", "inferd"]
        subprocess.run(
            [self._program("initdb"), *words],
            check=True,
            capture_output=True,
            **self._as_user,
        )

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://inferd@/postgres?host={self._folder}&port={PORT}"

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _program(self, name: str) -> str:
        return str(self._programs / name)

    def start(self) -> None:
        """Start it, in a group of its own, and wait until it answers."""
        assert eventually(self._is_up)

    def _is_up(self) -> bool:
        """Tell whether it answers; start it if it does not run.

        One that is started while the last process of a killed one still goes ends at once.
        """
        if self._server is None or self._server.poll() is not None:
            self._server = subprocess.Popen(
                [
                    *(self._program("postgres"), "-D", self._data),
                    *("-k", str(self._folder), "-c", "listen_addresses="),
                    *("-c", f"port={PORT}", "-c", "max_connections=200"),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **self._as_user,
            )
        return self._answers()

    def _answers(self) -> bool:
        ready = [self._program("pg_isready"), "-h", str(self._folder), "-p", PORT]
        return subprocess.run(ready, check=False, capture_output=True).returncode == 0

    def kill(self) -> None:
        """Kill all its processes at once, as a crash of the machine does."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()

    def stop(self) -> None:
        """End it."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait(PATIENCE_S)


@contextmanager
def postgresql() -> Iterator[PostgresqlServer]:
    """Run a server while inside, in a folder that its user may enter."""
    with TemporaryDirectory(prefix="inferd-postgresql-", dir=OPEN) as folder:
        server = PostgresqlServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
