"""The configuration: every setting, its default and what it may be."""

from typing import Annotated

from msgspec import Meta, Struct

from inferd import limits
from inferd.choices import CacheType, Family, Level, Speculation, Use

I32_MAX = 2**31 - 1
Positive = Annotated[int, Meta(ge=1, le=I32_MAX)]
Natural = Annotated[int, Meta(ge=0, le=I32_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=0, le=2**50)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
FilePath = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]+\Z")]
DraftTokens = Annotated[int, Meta(ge=1, le=limits.MAX_DRAFT_TOKENS)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

DEFAULT_CHAT_MODEL = "embedded:chat"


class ConfigError(Exception):
    """The configuration cannot be used; its text is one line for the operator."""


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Listen(_Table, frozen=True):
    """Where the sockets are."""

    directory: FilePath | None = None
    """Directory of all sockets and the lock. Default: the first that is known of
    ``$RUNTIME_DIRECTORY``, ``$XDG_RUNTIME_DIR/inferd``, ``~/.inferd/run``."""
    group: str | None = None
    """Group that may use the inference sockets. Default: the daemon's own."""
    v2: bool = True
    """False never binds the v2 socket; true binds it when a backend can serve it."""
    embed: bool = True
    """False never binds the embed socket; true binds it when a backend can serve it."""
    rerank: bool = True
    """False never binds the rerank socket; true binds it when a backend can serve it."""


Account = Annotated[int, Meta(ge=0, le=2**32 - 2)] | str
"""A user or a group, by its number or its name."""


class AccessRule(_Table, frozen=True):
    """Who may use a socket, root and the daemon's own user apart."""

    uids: tuple[Account, ...] = ()
    """Users."""
    gids: tuple[Account, ...] = ()
    """Groups: those who are in one, as their main group or as another."""


class AccessSettings(_Table, frozen=True):
    """Who may use which socket, of those whom its mode lets in.

    Root and the daemon's own user always may.
    """

    infer: AccessRule | None = None
    """Of ``infer.sock``. Default: all whom its mode lets in."""
    v2: AccessRule | None = None
    """Of ``infer.v2.sock``. Default: as ``infer``."""
    embed: AccessRule | None = None
    """Of ``infer.embed.sock``. Default: as ``infer``."""
    rerank: AccessRule | None = None
    """Of ``infer.rerank.sock``. Default: as ``infer``."""
    admin: AccessRule | None = None
    """Of ``admin.sock``, to look on, and to end requests of their own. Default: nobody
    else; with a rule the socket is open to ``listen.group``, too."""


Uid = Annotated[int, Meta(ge=1, le=2**32 - 2)]


class UidRange(_Table, frozen=True):
    """Uids that are not users of their own."""

    first: Uid
    """The first of them."""
    count: Uid
    """How many there are."""
    owner: Account | None = None
    """The user whom all of them count as. Default: none; they are containers'."""
    block: Uid | None = None
    """Without an owner: each so many of them are one user. Default: all of them."""


class UserSettings(_Table, frozen=True):
    """Which uids count as one user, wherever users are counted or kept apart.

    Who may use which socket goes by uids and groups as they are.
    """

    subuid_file: FilePath = "/etc/subuid"
    """The system's list of subordinate uids, as ``subuid(5)`` has it: they count as their
    owner. Those of root, of system accounts and of names that nobody has count as one user
    for each line, and share nothing that is kept. Uids below 65,536 and those in
    ``/etc/passwd`` are always users of their own."""
    subgid_file: FilePath = "/etc/subgid"
    """The same for groups: it tells the owner of a uid that is in no range."""
    ranges: Annotated[tuple[UidRange, ...], Meta(max_length=limits.MAX_UID_RANGES)] = ()
    """What these files do not say, of a directory service or of containers: ``count`` uids
    from ``first`` on count as ``owner``; where there is none, each ``block`` of them, or all,
    is a user. They come before the files, and may have no uid in common."""


class AdmissionSettings(_Table, frozen=True):
    """How many requests run and wait, over all backends and sockets."""

    max_active: Annotated[int, Meta(ge=1, le=limits.MAX_SEQUENCES)] | None = None
    """Requests that run at once. Default: the cores, at most 4; or what the memory has
    room for."""
    max_queued: Natural = limits.MAX_QUEUED
    """Further requests that wait; the next is refused. A user may have all places while
    no other waits, else an equal share. The first request of a user who has none here may
    go over this by as much again, and over the next two by an even share among such
    requests."""
    max_queued_tokens: Positive = limits.MAX_QUEUED_TOKENS
    """Tokens of the prompts and texts that wait; a request over it is refused once it is
    counted, unless it waits alone."""
    max_queued_bytes: Positive = limits.MAX_QUEUED_BYTES
    """Bytes of the requests that wait, as they were sent; a request over it is refused,
    unless it waits alone."""

    quantum_s: Annotated[float, Meta(ge=limits.QUANTUM_MIN_S, le=86_400)] = (
        limits.QUANTUM_S
    )
    """Seconds for which a request that runs keeps its place while another user waits who
    has less than an equal share of them; then one of those who have more is paused, and
    goes on when it is its turn."""
    max_live: Positive = limits.MAX_LIVE_RECORDINGS
    """Requests of one user whose sound is still being appended; the next is refused."""


class MemorySettings(_Table, frozen=True):
    """The machine's memory, shared by all backends; an accelerator's own is not in it."""

    budget: Bytes | None = None
    """Bytes that weights, contexts and the workers around them may take. Default: what is
    available to the daemon as it starts, less the reserve."""
    reserve: Bytes = limits.MEMORY_RESERVE_BYTES
    """Bytes of what is available that are left to others, and to requests while they are
    prepared; without a meaning where there is a budget."""


class LogSettings(_Table, frozen=True):
    """The log, and its file, which has the same lines as stderr."""

    level: Level = "info"
    """Events that matter less are left out; ``inferd serve --log-level`` overrides it."""
    file: bool = True
    """False writes none: lines go to stderr alone."""
    directory: FilePath | None = None
    """Directory of ``inferd.ndjson``. Default: the first that is known of
    ``$INFERD_LOG_DIR``, ``$LOGS_DIRECTORY``, ``~/.inferd/logs``."""
    max_bytes: Annotated[int, Meta(ge=limits.LOG_FILE_BYTES_MIN, le=2**50)] = (
        limits.LOG_FILE_BYTES
    )
    """Bytes of the file at which the next line begins a new one."""
    generations: Annotated[int, Meta(ge=0, le=limits.LOG_GENERATIONS_MAX)] = (
        limits.LOG_GENERATIONS
    )
    """Full files that are kept besides, ``inferd.ndjson.1`` the youngest."""


class LimitSettings(_Table, frozen=True):
    """Bounds an operator may want to move."""

    drain_s: Seconds = limits.DRAIN_S
    """Seconds that running and queued requests get after SIGTERM."""
    write_timeout_s: Seconds = limits.WRITE_TIMEOUT_S
    """Seconds one write to a client may take."""
    max_unread_bytes: Positive = limits.MAX_UNREAD_BYTES
    """Bytes of finished answers that wait for clients to read them. Over it, the oldest of
    the user who has most is given up and its client dropped."""
    max_connections: Positive = limits.MAX_CONNECTIONS
    """Clients connected at once, the admin socket's apart. A user may have all places; then
    an eighth as many more are for users who have fewer than an equal share. Fewer where
    the limit of open files says so."""
    max_admin_connections: Positive = limits.MAX_ADMIN_CONNECTIONS
    """Listeners on the admin socket at once."""
    max_media_bytes: Bytes = limits.MAX_MEDIA_BYTES
    """Bytes of pixels and sound that came in lines and are held decoded, by all requests;
    a request over it is refused, unless nothing else is held. A user may have all of it
    while no other has any, else an equal share. Open sound counts for
    ``max_audio_ahead_bytes`` from its beginning."""
    max_passed_bytes: Bytes = limits.MAX_PASSED_BYTES
    """Bytes of the attachments that one request passes as descriptors."""
    max_appended_bytes: Bytes = limits.MAX_APPENDED_BYTES
    """Bytes of the open sound of one request, in all: a day of it by default."""
    max_audio_ahead_bytes: Annotated[
        int, Meta(ge=limits.MIN_AUDIO_AHEAD_BYTES, le=2**40)
    ] = limits.MAX_AUDIO_AHEAD_BYTES
    """Bytes of open sound that wait to be read; over it, nothing more is taken from that
    connection: four minutes by default."""
    idle_s: Seconds = limits.IDLE_S
    """Seconds after which a connection that has nothing to be answered may be closed: only
    while fewer than a quarter of the places are free, and of a user who has no fewer than
    others."""
    line_timeout_s: Seconds = limits.LINE_TIMEOUT_S
    """Seconds a client may take for a line, unless something is being answered to it; and
    for the next one that appends, where the answer waits for it."""
    max_large_lines: Positive = limits.MAX_LARGE_LINES
    """Lines over 128 KiB, of up to 64 MiB, that are read at once; others wait their turn."""
    worker_silence_s: Seconds = limits.WORKER_SILENCE_S
    """Seconds without a word from a ready worker, or without progress in any of the jobs
    that it runs, before it is killed as hung."""
    load_silence_s: Seconds = limits.LOAD_SILENCE_S
    """Seconds without progress before a loading worker is killed as hung."""
    prepare_timeout_s: Seconds = limits.PREPARE_TIMEOUT_S
    """Seconds one prompt may take to be rendered and tokenised."""
    breaker_deaths: Positive = limits.BREAKER_DEATHS
    """Worker deaths in a row, without a served request, that open the breaker."""
    breaker_open_s: Seconds = limits.BREAKER_OPEN_S
    """Seconds the breaker stays open before one more start."""


class LlamaCppSettings(_Table, frozen=True, tag="llamacpp", tag_field="kind"):
    """A backend that runs a GGUF model with llama.cpp."""

    name: Name
    """How frames and logs call it."""
    model: FilePath = DEFAULT_CHAT_MODEL
    """Path of a GGUF file, or ``embedded:chat``, ``embedded:embed``, ``embedded:rerank``."""
    sha256: Sha256 | None = None
    """SHA-256 the file must have, checked at each load; a model in several files cannot
    have one. Default: not checked."""
    mmproj: FilePath | None = None
    """Path of a GGUF file with the model's projector: it makes pictures or sound readable."""
    mmproj_sha256: Sha256 | None = None
    """SHA-256 the projector's file must have. Default: not checked."""
    n_ctx: Annotated[int, Meta(ge=8, le=I32_MAX)] | None = None
    """Tokens of one request, prompt and answer. Default: 8192 or the model's, if less; or
    what the memory has room for, but 2048 at least."""
    cache_type_k: CacheType = "f16"
    """How the keys of the KV cache are kept: ``f16``, or ``q8_0`` in about half the memory."""
    cache_type_v: CacheType = "f16"
    """The same for its values; ``q8_0`` needs flash attention, which most models have."""
    n_threads: Annotated[int, Meta(ge=1, le=limits.MAX_THREADS)] | None = None
    """Most threads for decoding; fewer while others use the cores. Default: the cores
    this process may use."""
    cpu_variant: Name | None = None
    """The only variant of llama.cpp's CPU code to use, as ``inferd doctor`` names it.
    Default: the best for this processor, and the next one where that crashes."""
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=I32_MAX)] = 0
    """Layers on the accelerator; -1 for all."""
    serves: Use | None = None
    """``generate``, ``embed`` or ``rerank``: what the model is for. Default: as its file
    says (a pooling type makes it an embedding model, or a reranker)."""
    embed_pooling: Annotated[int, Meta(ge=1, le=4)] | None = None
    """How an embedding model makes one vector of many: 1 mean, 2 first token, 3 last
    token; 4 for a reranker's score. Default: as the file says."""
    prompt_cache_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = limits.PROMPT_CACHE_MB
    """MiB of host memory for prompts and answers that may be continued, of what the
    budget has left; with 0 nothing is kept, in the context neither."""
    pause_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = limits.PAUSE_MB
    """MiB of host memory for the states of answers that are paused for other users, of
    what the budget has left; one without its state is read again when it goes on."""
    media_cache_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = limits.MEDIA_CACHE_MB
    """MiB of host memory for what a projector has made of pictures and sound; 0 keeps none."""
    speculation: Speculation = "off"
    """How tokens are guessed ahead of the model, which checks several at once: ``lookup``
    by what came after the same tokens before, ``draft`` by another model. It changes no
    answer more than any other size of a batch does, by the last bits of sums; what it
    gains depends on machine and text. A recurrent model cannot have it."""
    draft_model: FilePath | None = None
    """With ``speculation = "draft"``: path of a GGUF file of a much smaller model with the
    same vocabulary. Its weights and a context of the same size, in ``f16``, count as this
    backend's memory."""
    draft_max: DraftTokens = limits.DRAFT_TOKENS
    """Tokens of one answer that are guessed at once, at most."""
    chat_template: Family | None = None
    """The family whose way of writing prompts, thoughts and calls the model follows.
    Default: told by its file's architecture and chat template."""


class WhisperCppSettings(_Table, frozen=True, tag="whispercpp", tag_field="kind"):
    """A backend that writes speech down with whisper.cpp."""

    name: Name
    """How frames and logs call it."""
    model: FilePath = "embedded:speech"
    """Path of a model file of whisper.cpp's, or ``embedded:speech`` (English),
    ``embedded:speech-multilingual``."""
    sha256: Sha256 | None = None
    """SHA-256 the file must have, checked at each load. Default: not checked."""
    n_threads: Annotated[int, Meta(ge=1, le=limits.MAX_THREADS)] | None = None
    """Threads that compute. Default: the cores this process may use."""


class MockSettings(_Table, frozen=True, tag="mock", tag_field="kind"):
    """A backend that follows a script, for clients' tests and our own."""

    name: Name
    """How frames and logs call it."""
    tokens: tuple[str, ...] = ("mock-response",)
    """What it says, one frame each."""
    vision: bool = False
    """Take images."""
    audio: bool = False
    """Take sound, of 16,000 samples a second."""
    transcribe: bool = False
    """Write speech down: what it says is what it hears, a second each."""
    prepare_delay_ms: Natural = 0
    """Milliseconds that reading a request takes."""
    token_delay_ms: Natural = 0
    """Milliseconds before each token."""
    die_after_tokens: Natural = 0
    """Tokens of one answer after which the worker kills itself; 0 for never."""
    die_by: Annotated[str, Meta(pattern=r"^SIG(KILL|SEGV|ABRT|TERM|STOP)\Z")] = (
        "SIGKILL"
    )
    """The signal it uses; SIGSTOP makes it hang instead."""
    die_at_load: bool = False
    """Die before it is ready."""


BackendSettings = LlamaCppSettings | WhisperCppSettings | MockSettings


class Config(_Table, frozen=True):
    """All settings, defaults filled in."""

    listen: Listen = Listen()
    access: AccessSettings = AccessSettings()
    users: UserSettings = UserSettings()
    admission: AdmissionSettings = AdmissionSettings()
    memory: MemorySettings = MemorySettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    backend: Annotated[tuple[BackendSettings, ...], Meta(min_length=1)] = (
        LlamaCppSettings(name="chat"),
    )
