"""The receivers of the daemon's status: admin clients, systemd, monitoring."""

from collections.abc import Mapping
from typing import NamedTuple

from inferd.limits.engine import LOAD_SILENCE_S
from inferd.server.telemetry.log_tail import LogTail
from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.sd_notify import Notifier
from inferd.server.telemetry.status import StatusBoard
from inferd.wire.status import StatusFrame


class Telemetry(NamedTuple):
    """Status board, notifier and metrics, which the board passes its frames; and the log's tail."""

    board: StatusBoard
    notifier: Notifier
    metrics: Metrics
    log_tail: LogTail


def make_telemetry(
    environ: Mapping[str, str], *, load_silence_s: float = LOAD_SILENCE_S
) -> Telemetry:
    """Make and connect them.

    Args:
        environ: of the process, with systemd's variables.
        load_silence_s: as configured; seconds that a loading worker may be silent.
    """
    notifier = Notifier(environ, load_silence_s=load_silence_s)
    metrics = Metrics()

    def follow(frame: StatusFrame) -> None:
        notifier.follow(frame)
        metrics.follow(frame)

    board = StatusBoard(on_publish=follow, on_death=metrics.worker_died)
    return Telemetry(board, notifier, metrics, LogTail())
