"""A bridge of one's own in front of a daemon."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.llama_server import RunningServer, free_port, running


@contextmanager
def running_bridge(directory: Path, *options: str) -> Iterator[RunningServer]:
    """Run a bridge while inside.

    Args:
        directory: of the daemon's sockets.
        options: further ones of its command line.
    """
    port = free_port()
    command = [
        *(sys.executable, "-m", "inferd", "bridge", "--directory", str(directory)),
        *("--listen", f"127.0.0.1:{port}", *options),
    ]
    with running(command, port, "/health") as server:
        yield server
