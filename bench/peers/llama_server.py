"""llama.cpp's own HTTP server, of the same release: a peer to be measured against."""

import http.client
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.daemon import POLL_S, ended_at_exit
from bench.peers.build import tool

START_S: Final = 120.0
"""Seconds a server gets to load a model."""
HEALTH_S: Final = 2.0
"""Seconds one look at it may take."""
WORDS_CHARS: Final = 2000
"""Of its last words, if it does not come up."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that serves."""

    pid: int
    address: str
    """``host:port``."""
    ready_s: float
    """Seconds it took to be healthy."""


def server_command(
    model: Path, *, threads: int, extra_args: Sequence[str] = ()
) -> list[str]:
    """Give the command line, all but the port."""
    return [
        *(str(tool("llama-server")), "--model", str(model), "--host", "127.0.0.1"),
        *("--threads", str(threads), "--threads-batch", str(threads), *extra_args),
    ]


@contextmanager
def running_server(
    model: Path, *, threads: int, extra_args: Sequence[str] = ()
) -> Iterator[RunningServer]:
    """Run the server on a model while inside."""
    port = free_port()
    command = server_command(model, threads=threads, extra_args=extra_args)
    with running([*command, "--port", str(port)], port, "/health") as server:
        yield server


@contextmanager
def running(command: Sequence[str], port: int, health: str) -> Iterator[RunningServer]:
    """Run any HTTP server while inside, from when it says that it is well."""
    address = f"127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as words:
        began_at = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT
        )
        with ended_at_exit(process):
            if not comes_up(lambda: is_well(address, health), process):
                words.seek(0)
                name = Path(command[0]).name
                sys.exit(f"{name} does not come up:\n{words.read()[-WORDS_CHARS:]}")
            ready_s = time.monotonic() - began_at
            yield RunningServer(process.pid, address, ready_s)


def free_port() -> int:
    """Find a port of the loopback interface that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def comes_up(is_there: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server is well; false if it ends or takes too long."""
    deadline = time.monotonic() + START_S
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def is_well(address: str, health: str) -> bool:
    """Ask a server how it is."""
    connection = http.client.HTTPConnection(address, timeout=HEALTH_S)
    try:
        connection.request("GET", health)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
