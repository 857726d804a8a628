"""A bridge of one's own in front of a daemon."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.daemon import RunningDaemon
from bench.peers.llama_server import RunningServer, free_port, running


@contextmanager
def running_bridge(daemon: RunningDaemon) -> Iterator[RunningServer]:
    """Run a bridge to a daemon, with its configuration, while inside."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "inferd", "bridge", "--config", str(daemon.config)),
        *("--listen", f"127.0.0.1:{port}"),
    ]
    with running(command, port, "/health") as server:
        yield server
