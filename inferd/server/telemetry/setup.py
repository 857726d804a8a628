"""The receivers of the daemon's status: admin clients, systemd, monitoring."""

from collections.abc import Mapping
from typing import NamedTuple

from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.sd_notify import Notifier
from inferd.server.telemetry.status import StatusBoard


class Telemetry(NamedTuple):
    """Status board, notifier and metrics; the board passes its frames to the notifier."""

    board: StatusBoard
    notifier: Notifier
    metrics: Metrics


def make_telemetry(environ: Mapping[str, str]) -> Telemetry:
    """Make and connect them.

    Args:
        environ: of the process, with systemd's variables.
    """
    notifier = Notifier(environ)
    metrics = Metrics()
    board = StatusBoard(on_publish=notifier.follow, on_death=metrics.worker_died)
    return Telemetry(board, notifier, metrics)
