"""What all connections of a daemon share."""

from dataclasses import dataclass, field

from inferd.config import LimitSettings
from inferd.server.arrivals import ReadAhead
from inferd.server.custody import Custody
from inferd.server.decoding import Decoders
from inferd.server.hangup import Hangups
from inferd.server.holdings import MediaRoom
from inferd.server.identity import Identities
from inferd.server.large_lines import LargeLines
from inferd.server.limits import MAX_CLIENT_DESCRIPTORS
from inferd.server.loop import Loop
from inferd.server.register import Register
from inferd.server.room import Room
from inferd.server.unread import Unread


@dataclass(slots=True)
class Surroundings:
    """What all connections share."""

    hangups: Hangups
    register: Register
    room: Room
    large_lines: LargeLines
    unread: Unread
    media: MediaRoom
    limits: LimitSettings
    """As they are now: what begins after a change is bound by the new ones."""
    loop: Loop = field(default_factory=Loop)
    decoders: Decoders = field(default_factory=Decoders)
    """Those that are not open read nothing: all lines are read here."""
    read_ahead: ReadAhead = field(default_factory=ReadAhead)
    custody: Custody = field(default_factory=lambda: Custody(MAX_CLIENT_DESCRIPTORS))
    identities: Identities = field(default_factory=Identities)
    """Tell as whom those who connect from now on count."""
