"""The settings of the configuration, with their defaults and allowed values."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from inferd.config.bridge import BridgeSettings
from inferd.config.bridge_helper import HelperSettings
from inferd.config.chats import ChatsSettings
from inferd.config.choices import LoadTime, LogLevel
from inferd.limits.admission import (
    GATEWAY_WEIGHT,
    MAX_GATEWAY_WEIGHT,
    MAX_LIVE_RECORDINGS,
    MAX_QUEUED,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_TOKENS,
    QUANTUM_MIN_S,
    QUANTUM_S,
)
from inferd.limits.connections import (
    DRAIN_S,
    IDLE_S,
    LINE_TIMEOUT_S,
    MAX_ADMIN_CONNECTIONS,
    MAX_APPENDED_BYTES,
    MAX_AUDIO_AHEAD_BYTES,
    MAX_CONNECTIONS,
    MAX_LARGE_LINES,
    MAX_MEDIA_BYTES,
    MAX_PASSED_BYTES,
    MAX_UID_RANGES,
    MAX_UNREAD_BYTES,
    MIN_AUDIO_AHEAD_BYTES,
    WRITE_TIMEOUT_S,
)
from inferd.limits.engine import (
    BREAKER_DEATHS,
    BREAKER_OPEN_S,
    LOAD_SILENCE_S,
    MAX_SEQUENCES,
    MEMORY_RESERVE_BYTES,
    PREPARE_TIMEOUT_S,
    WORKER_SILENCE_S,
)
from inferd.limits.log import (
    LOG_FILE_BYTES,
    LOG_FILE_BYTES_MIN,
    LOG_GENERATIONS,
    LOG_GENERATIONS_MAX,
)
from inferd.limits.protocol import MAX_MODEL_CHARS
from inferd.limits.residency import (
    KEEP_ALIVE_MAX_S,
    KEEP_ALIVE_S,
    LONGEST_WAIT_S,
    MAX_OPENED_MODELS,
    MIN_RESIDENCY_S,
)
from inferd.limits.server import MAX_ALIASES, MAX_EXPLAINED, MAX_GATEWAYS

I32_MAX = 2**31 - 1
Positive = Annotated[int, Meta(ge=1, le=I32_MAX)]
Natural = Annotated[int, Meta(ge=0, le=I32_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=0, le=2**50)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
BackendName = Annotated[
    str, Meta(pattern=rf"^[A-Za-z0-9_][A-Za-z0-9._:/-]{{0,{MAX_MODEL_CHARS - 1}}}\Z")
]
Alias = Annotated[
    str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{{0,{MAX_MODEL_CHARS - 1}}}\Z")
]
FilePath = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]+\Z")]
KeepAlive = Annotated[float, Meta(ge=0, le=KEEP_ALIVE_MAX_S)]
Wait = Annotated[float, Meta(ge=0, le=86_400)]
Quantum = Annotated[float, Meta(ge=QUANTUM_MIN_S, le=86_400)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line for the operator."""


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the tables of the file."""


class ListenSettings(Table, frozen=True):
    """The sockets."""

    directory: FilePath | None = None
    """Directory of all sockets and the lock. Default: the first that is set of
    ``$RUNTIME_DIRECTORY``, ``$XDG_RUNTIME_DIR/inferd``, ``~/.inferd/run``."""
    group: str | None = None
    """Group that may use the inference sockets. Default: the daemon's own."""
    v2: bool = True
    """``false``: never bind the v2 socket. ``true``: bind it if a backend can serve it."""
    embed: bool = True
    """``false``: never bind the embed socket. ``true``: bind it if a backend can serve it."""
    rerank: bool = True
    """``false``: never bind the rerank socket. ``true``: bind it if a backend can serve it."""


Account = Annotated[int, Meta(ge=0, le=2**32 - 2)] | str
"""A user or a group, by number or name."""


class AccessRule(Table, frozen=True):
    """Users and groups that may use a socket, besides root and the daemon's own user."""

    uids: tuple[Account, ...] = ()
    """Users."""
    gids: tuple[Account, ...] = ()
    """Groups, as a user's primary or supplementary group."""


class GatewayRule(Table, frozen=True):
    """Users who speak for others."""

    uids: Annotated[tuple[Account, ...], Meta(max_length=MAX_GATEWAYS)] = ()
    """Users."""


class AccessSettings(Table, frozen=True):
    """Access to each socket, for users whom its file mode admits.

    Root and the daemon's own user always have access.
    """

    infer: AccessRule | None = None
    """For ``infer.sock``. Default: all users whom its mode admits."""
    v2: AccessRule | None = None
    """For ``infer.v2.sock``. Default: as ``infer``."""
    embed: AccessRule | None = None
    """For ``infer.embed.sock``. Default: as ``infer``."""
    rerank: AccessRule | None = None
    """For ``infer.rerank.sock``. Default: as ``infer``."""
    admin: AccessRule | None = None
    """For ``admin.sock``: to watch the status, and to cancel one's own requests. Default:
    nobody else; a rule also opens the socket to ``listen.group``."""
    gateways: GatewayRule | None = None
    """Users whose requests may say with ``principal`` who is asking, such as ``inferd bridge``.
    Their principals are served in turn, and none gets the cached prompts of another. In the
    shares of other users a gateway counts as ``admission.gateway_weight``. Default: nobody, and
    a ``principal`` is refused."""


Uid = Annotated[int, Meta(ge=1, le=2**32 - 2)]


class UidRange(Table, frozen=True):
    """A range of uids that are not users of their own, such as those of containers."""

    first: Uid
    """The first uid."""
    count: Uid
    """Number of uids."""
    owner: Account | None = None
    """The user that all of them count as. Default: none, as for containers."""
    block: Uid | None = None
    """Without an owner: number of consecutive uids that are one user. Default: all."""


class UserSettings(Table, frozen=True):
    """Uids that count as one user, in every limit for a user and in who owns data.

    Access to sockets is decided by the uids and groups themselves.
    """

    subuid_file: FilePath = "/etc/subuid"
    """File with ranges of subordinate uids, see ``subuid(5)``. A uid in such a range counts
    as the owner of the range. If the owner is root, a system account or an unknown name, all
    uids of that line of the file count as one user, but share no cached state. Uids below
    65,536 and those in ``/etc/passwd`` are always users of their own."""
    subgid_file: FilePath = "/etc/subgid"
    """File with ranges of subordinate gids, see ``subgid(5)``. A client whose uid is in no
    range counts as the owner of the range that has its gid, if there is one."""
    ranges: Annotated[tuple[UidRange, ...], Meta(max_length=MAX_UID_RANGES)] = ()
    """Ranges that these files lack, of a directory service or of containers: ``count`` uids
    from ``first`` on count as ``owner``. Without an owner, each ``block`` consecutive uids
    of them count as one user, or all of them if there is no ``block``. Ranges take precedence
    over the files, and may not overlap."""


class AdmissionSettings(Table, frozen=True):
    """Limits of running and queued requests, over all backends and sockets."""

    max_active: Annotated[int, Meta(ge=1, le=MAX_SEQUENCES)] | None = None
    """Requests that run at once. Default: the number of cores, at most 4, and fewer if
    memory is short."""
    max_queued: Natural = MAX_QUEUED
    """Requests that wait; the next is refused. One user may fill the queue while no other
    waits, otherwise an equal share of it. For the first request of users who have no other
    one queued there are as many places again; such a request may also exceed each of the
    next two limits by an equal share of that limit among such requests. With a backend of
    ``load = "demand"`` or ``models.serve``, 1 at least."""
    max_queued_tokens: Positive = MAX_QUEUED_TOKENS
    """Tokens of the prompts and texts of queued requests together. A request that would
    exceed it is refused once its tokens are counted, unless it waits alone."""
    max_queued_bytes: Positive = MAX_QUEUED_BYTES
    """Bytes of queued requests together, as received. A request that would exceed it is
    refused, unless it waits alone."""
    quantum_s: Quantum = QUANTUM_S
    """Seconds that a request runs before it may be paused for a waiting user who has less
    than an equal share of the running requests; it is resumed later."""
    max_live: Positive = MAX_LIVE_RECORDINGS
    """Requests of one user whose audio is still being appended; the next is refused."""
    gateway_weight: Annotated[int, Meta(ge=1, le=MAX_GATEWAY_WEIGHT)] = GATEWAY_WEIGHT
    """Users that one of ``access.gateways`` counts as at most: it counts as many as it has
    principals whose requests wait or run."""


class MemorySettings(Table, frozen=True):
    """Main memory shared by all backends; an accelerator's own memory is not counted."""

    budget: Bytes | None = None
    """Bytes that weights, contexts and worker processes may use. Default: the memory
    available when the daemon starts, minus the reserve."""
    reserve: Bytes = MEMORY_RESERVE_BYTES
    """Bytes of the available memory that are left to other processes, and to requests
    while they are prepared; ignored if there is a budget."""
    min_residency_s: Wait = MIN_RESIDENCY_S
    """Seconds for which a model that was loaded on demand is not unloaded for another."""
    longest_wait_s: Wait = LONGEST_WAIT_S
    """Seconds that requests wait for memory which another model on demand uses. Then that
    one starts no further request, and is unloaded once those that run have ended."""


class ModelsSettings(Table, frozen=True):
    """The models of the store that are served by name, without a ``[[backend]]``."""

    serve: bool | Annotated[tuple[str, ...], Meta(max_length=MAX_OPENED_MODELS)] = False
    """``true``: requests may name any model of the store; or the names of those that they may
    name, which the daemon does not start without. Each is loaded when a request names it. A
    request without a name goes to ``[[backend]]`` alone, unless there is none and the store
    has one model. Without any ``[[backend]]`` no other model is served."""
    n_ctx: Annotated[int, Meta(ge=8, le=I32_MAX)] | None = None
    """Tokens of one request to such a model, as ``n_ctx`` of ``[[backend]]``. Default: 8192, or
    the model's if that is less; reduced to fit into memory, but to no less than 2048."""
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=I32_MAX)] | Literal["auto", "all"] = 0
    """Layers of each on accelerators, as ``n_gpu_layers`` of ``[[backend]]``."""
    keep_alive_s: KeepAlive = KEEP_ALIVE_S
    """Seconds without a request until such a model is unloaded; 0 for never."""


class LogSettings(Table, frozen=True):
    """The log on stderr, and its file, which has the same lines."""

    level: LogLevel = "info"
    """Events below this level are omitted; ``inferd serve --log-level`` overrides it."""
    file: bool = True
    """``false``: write no file; lines go to stderr only."""
    directory: FilePath | None = None
    """Directory of ``inferd.ndjson``. Default: the first that is set of
    ``$INFERD_LOG_DIR``, ``$LOGS_DIRECTORY``, ``~/.inferd/logs``."""
    max_bytes: Annotated[int, Meta(ge=LOG_FILE_BYTES_MIN, le=2**50)] = LOG_FILE_BYTES
    """Bytes of the file at which a new one is started."""
    generations: Annotated[int, Meta(ge=0, le=LOG_GENERATIONS_MAX)] = LOG_GENERATIONS
    """Older files that are kept, ``inferd.ndjson.1`` being the most recent."""


class LimitSettings(Table, frozen=True):
    """Timeouts and bounds."""

    drain_s: Seconds = DRAIN_S
    """Seconds to finish running and queued requests after SIGTERM."""
    write_timeout_s: Seconds = WRITE_TIMEOUT_S
    """Seconds that one write to a client may take."""
    max_unread_bytes: Positive = MAX_UNREAD_BYTES
    """Bytes of finished answers that clients have not read yet. Over it, the oldest answer
    of the user with the most (of a gateway, of its principal with the most) is discarded,
    and its client disconnected."""
    max_connections: Positive = MAX_CONNECTIONS
    """Clients connected at once, without those of the admin socket. One user may use them
    all; in addition, an eighth as many are reserved for users with fewer than an equal share.
    The limit of open files may reduce it."""
    max_admin_connections: Positive = MAX_ADMIN_CONNECTIONS
    """Clients connected to the admin socket at once."""
    max_media_bytes: Bytes = MAX_MEDIA_BYTES
    """Bytes of decoded pixels and audio samples that came in request lines, of all requests
    together. A request that would exceed it is refused, unless no other request has any such
    bytes. One user may use all of it while no other user has any, otherwise an equal share.
    An open attachment counts as ``max_audio_ahead_bytes`` from its beginning."""
    max_passed_bytes: Bytes = MAX_PASSED_BYTES
    """Bytes of the attachments that one request passes as descriptors."""
    max_appended_bytes: Bytes = MAX_APPENDED_BYTES
    """Bytes of audio appended to one request in total: a day by default."""
    max_audio_ahead_bytes: Annotated[int, Meta(ge=MIN_AUDIO_AHEAD_BYTES, le=2**40)] = (
        MAX_AUDIO_AHEAD_BYTES
    )
    """Bytes of appended audio that are not transcribed yet. Above this (four minutes by
    default), the connection is not read."""
    idle_s: Seconds = IDLE_S
    """Seconds after which a connection without a request in progress may be closed: only
    while less than a quarter of ``max_connections`` is free, and only of a user who has no
    fewer connections than others."""
    line_timeout_s: Seconds = LINE_TIMEOUT_S
    """Seconds that a client may take to send a line while none of its requests is in
    progress. Also the seconds that it may take to send the next append line while the answer
    waits for it."""
    max_large_lines: Positive = MAX_LARGE_LINES
    """Request lines of 128 KiB to 64 MiB that are received at once; others wait."""
    worker_silence_s: Seconds = WORKER_SILENCE_S
    """Seconds without a message from a ready worker, or without progress of any job that it
    runs, before it is killed as hung."""
    load_silence_s: Seconds = LOAD_SILENCE_S
    """Seconds without progress before a loading worker is killed as hung."""
    prepare_timeout_s: Seconds = PREPARE_TIMEOUT_S
    """Seconds to render and tokenise one prompt."""
    breaker_deaths: Positive = BREAKER_DEATHS
    """Consecutive worker deaths, without a served request between, that open the circuit
    breaker."""
    breaker_open_s: Seconds = BREAKER_OPEN_S
    """Seconds that the circuit breaker stays open before the next start is tried."""
    max_explained: Annotated[int, Meta(ge=0, le=10_000)] = MAX_EXPLAINED
    """Ended requests whose times, names and counts are kept for ``inferd explain`` and
    ``inferd top``, never a text of theirs; 0 for none. They are lost when the daemon ends."""


class BackendSettings(Table, frozen=True):
    """A backend; each kind extends this, with a tag that is its ``kind``."""

    name: BackendName
    """Name in frames and logs, and for the ``model`` of requests."""
    aliases: Annotated[tuple[Alias, ...], Meta(max_length=MAX_ALIASES)] = ()
    """Further names for the ``model`` of requests; no two backends have one in common."""


class WorkerSettings(BackendSettings, frozen=True):
    """A backend that is a worker process, whose model can be loaded and unloaded."""

    load: LoadTime = "start"
    """``start``: load the model when the daemon starts, and keep it. ``demand``: load it for
    the first request, and unload it when others need the memory or ``keep_alive_s`` is over;
    at the start its file is only checked."""
    keep_alive_s: KeepAlive = KEEP_ALIVE_S
    """With ``load = "demand"``: seconds without a request until the model is unloaded; 0 for
    never."""


def is_on_demand(settings: BackendSettings) -> bool:
    """Tell whether a backend's model is loaded on demand."""
    return isinstance(settings, WorkerSettings) and settings.load == "demand"


def keep_alive_of(settings: BackendSettings) -> float:
    """Return the seconds without a request until a model is unloaded; 0 for never."""
    return settings.keep_alive_s if isinstance(settings, WorkerSettings) else 0.0


class Config(Table, frozen=True):
    """All settings, with defaults filled in."""

    listen: ListenSettings = ListenSettings()
    access: AccessSettings = AccessSettings()
    users: UserSettings = UserSettings()
    admission: AdmissionSettings = AdmissionSettings()
    memory: MemorySettings = MemorySettings()
    models: ModelsSettings = ModelsSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    bridge: BridgeSettings = BridgeSettings()
    bridge_helper: HelperSettings = HelperSettings()
    chats: ChatsSettings = ChatsSettings()
    backend: Annotated[tuple[BackendSettings, ...], Meta(min_length=1)] = ()
    """The backends. A file may have any of the kinds that it is read with, and without
    ``[[backend]]`` gets the default of those, or none if models of the store are served."""

    @property
    def served(self) -> str:
        """The names of what it serves, for people."""
        names = [backend.name for backend in self.backend]
        if isinstance(self.models.serve, tuple):
            names += self.models.serve
        elif self.models.serve:
            names.append("all models of the store")
        return ", ".join(names)
