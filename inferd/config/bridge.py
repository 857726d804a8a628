"""The settings of the HTTP bridge: the table ``[bridge]``, which the daemon ignores."""

from typing import Annotated

from msgspec import Meta, Struct

from inferd.limits.bridge import (
    AUDIO_S,
    BODY_S,
    HEAD_S,
    HTTP_DRAIN_S,
    HTTP_IDLE_S,
    HTTP_WRITE_S,
    MAX_AUDIO_BYTES,
    MAX_BODIES_BYTES,
    MAX_BODY_BYTES,
    MAX_CHOICES_TOKENS,
    MAX_HEAD_BYTES,
    MAX_HTTP_CONNECTIONS,
    MAX_HTTP_REQUESTS,
)
from inferd.limits.media_decoder import (
    MAX_DECODED_BYTES,
    MAX_SOUND_S,
    MEDIA_DECODE_S,
    MEDIA_DECODERS,
)
from inferd.limits.worker import MEDIA_PIXELS

Count = Annotated[int, Meta(ge=1, le=65_536)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Place = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]+\Z")]
Words = Annotated[tuple[str, ...], Meta(max_length=64)]
DEFAULT_LISTEN = "127.0.0.1:8313"


class BridgeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP bridge, ``inferd bridge``; the daemon itself ignores this table."""

    listen: Place = DEFAULT_LISTEN
    """Address and port, ``127.0.0.1:8313`` or ``[::1]:8313``, or the path of a Unix socket,
    which contains a ``/``. An address that is not loopback needs TLS. Without effect where systemd
    holds the sockets."""
    certificate: Place | None = None
    """File with the certificate chain for TLS, in PEM."""
    key: Place | None = None
    """File with the private key of the certificate, in PEM."""
    hosts: Words = ()
    """Names by which clients may address the bridge in ``Host``, without a port, besides
    ``localhost`` and the address that it listens at."""
    origins: Words = ()
    """Origins of web pages that may use the bridge, such as ``https://chat.example.org``.
    Default: none; requests of any page are refused."""
    tokens: Place | None = None
    """File of the tokens. Default: ``bridge-tokens.json`` beside the configuration in
    ``~/.config/inferd``; of the machine's bridge, in ``/etc/inferd``."""
    own_user: bool = True
    """``false``: the bridge's own user needs a token as well, as where a program of that user
    forwards what others send: a reverse proxy, or a tunnel."""
    gateway: bool = False
    """``true``: tell the daemon the name of the token that each request came with, so that its
    queue, cache and log go by names. The daemon's ``access.gateways`` must have the bridge's
    user."""
    max_connections: Count = MAX_HTTP_CONNECTIONS
    """HTTP connections at once, half of them at most with requests of one token or user; further
    ones wait to be accepted, and an idle one of who has most makes room."""
    max_requests: Count = MAX_HTTP_REQUESTS
    """Requests that are with the daemon at once, half of them at most of one token or user; the
    next is refused with 429."""
    max_head_bytes: Bytes = MAX_HEAD_BYTES
    """Bytes of a request's line and headers."""
    head_s: Seconds = HEAD_S
    """Seconds that they may take to arrive, from their first byte on."""
    max_body_bytes: Bytes = MAX_BODY_BYTES
    """Bytes of a request's body."""
    max_audio_bytes: Bytes = MAX_AUDIO_BYTES
    """Bytes of a body with a recording, instead of ``max_body_bytes``."""
    max_bodies_bytes: Bytes = MAX_BODIES_BYTES
    """Bytes of all bodies that are being received or served, half of them at most of one token or
    user, or one body."""
    body_s: Seconds = BODY_S
    """Seconds that a body may take to arrive."""
    audio_s: Seconds = AUDIO_S
    """Seconds that a body with a recording may take to arrive, instead of ``body_s``."""
    idle_s: Seconds = HTTP_IDLE_S
    """Seconds without a request after which a connection is closed."""
    write_s: Seconds = HTTP_WRITE_S
    """Seconds that one write to a client may take."""
    drain_s: Seconds = HTTP_DRAIN_S
    """Seconds that answers have to finish after SIGTERM."""
    media_decoders: Count = MEDIA_DECODERS
    """Pictures and recordings that are decoded at once, each by a confined process of its own;
    all but one of them at most of one token or user."""
    media_decode_s: Seconds = MEDIA_DECODE_S
    """Seconds that one of them may take."""
    max_picture_pixels: Annotated[int, Meta(ge=1, le=MEDIA_PIXELS)] = MEDIA_PIXELS
    """Pixels of one picture."""
    max_sound_s: Seconds = MAX_SOUND_S
    """Seconds of one recording."""
    max_decoded_bytes: Bytes = MAX_DECODED_BYTES
    """Bytes of pixels and samples that are held for the daemon, half of them at most of one
    token or user."""
    default_max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = MAX_CHOICES_TOKENS
    """Tokens of an answer for which the request sets no bound; an answer that is cut there
    ends with the reason ``length``."""
