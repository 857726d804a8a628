"""Who is told what happens to the daemon: admin's listeners, systemd, monitoring."""

from collections.abc import Mapping
from typing import NamedTuple

from inferd.server.metrics import Metrics
from inferd.server.notify import Notifier
from inferd.server.status import StatusBoard


class Audience(NamedTuple):
    """All of them; the board hears first."""

    board: StatusBoard
    notifier: Notifier
    metrics: Metrics


def gather(environ: Mapping[str, str]) -> Audience:
    """Bring them together.

    Args:
        environ: where systemd says how to reach it.
    """
    notifier = Notifier(environ)
    metrics = Metrics()
    board = StatusBoard(on_publish=notifier.follow, on_death=metrics.worker_died)
    return Audience(board, notifier, metrics)
