"""Dependencies that all connections of a daemon share."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from inferd.backend.gauge import GaugeSpec
from inferd.config.settings import LimitSettings
from inferd.fair_limiter import FairLimiter
from inferd.limits.server import MAX_CLIENT_DESCRIPTORS
from inferd.server.connection.disconnect_watch import DisconnectWatch
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.connection.read_ahead import ReadAheadCounter
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.fd_passing.quota import FdQuota
from inferd.server.identity.gateways import Gateways
from inferd.server.identity.mapping import Identities
from inferd.server.inflight import InFlight
from inferd.server.large_lines.decoder_pool import DecoderPool
from inferd.server.media.quota import MediaQuota
from inferd.server.telemetry.metrics import Metrics


@dataclass(slots=True)
class ConnectionDeps:
    """Dependencies that all connections of a daemon share."""

    disconnects: DisconnectWatch
    in_flight: InFlight
    metrics: Metrics
    connection_limit: ConnectionLimit
    line_limiter: FairLimiter
    output_quota: OutputQuota
    media_quota: MediaQuota
    limits: LimitSettings
    """The current limits: a change applies to whatever begins after it."""
    loop: LoopScheduler = field(default_factory=LoopScheduler)
    decoders: DecoderPool = field(default_factory=DecoderPool)
    """Decodes large lines; until it is opened, all lines are decoded in the daemon."""
    read_ahead: ReadAheadCounter = field(default_factory=ReadAheadCounter)
    fd_quota: FdQuota = field(default_factory=lambda: FdQuota(MAX_CLIENT_DESCRIPTORS))
    identities: Identities = field(default_factory=Identities)
    """Maps the credentials of new connections to users."""
    gateways: Gateways = field(default_factory=Gateways)
    """Says whose requests may name a principal."""

    def gauges(self) -> Iterator[GaugeSpec]:
        """Describe the gauges of what connections hold."""
        parts = (self.connection_limit, self.output_quota, self.fd_quota, self.gateways)
        return (each.gauge() for each in parts)
