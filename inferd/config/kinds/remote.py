"""What all kinds of remote engines have in common: settings, and how they are treated."""

from collections.abc import Callable
from typing import Annotated, ClassVar, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from inferd.config.kinds.kind import (
    BackendKind,
    Contradiction,
    Credential,
    DoctorPolicy,
    InWorker,
    MemoryPolicy,
    Sandbox,
    no_files,
    no_rungs,
)
from inferd.config.kinds.model_paths import FindModel, absolute_path
from inferd.config.kinds.remote_address import (
    SOCKET_PREFIX,
    SOCKETS_PREFIX,
    parse_address,
)
from inferd.config.kinds.remote_limits import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    FIRST_TOKEN_TIMEOUT_S,
    HIGHEST_ANSWER_BYTES,
    HIGHEST_DAY_TOKENS,
    HIGHEST_EVENT_BYTES,
    MAX_ANSWER_BYTES,
    MAX_EVENT_BYTES,
    STALL_TIMEOUT_S,
)
from inferd.config.settings import (
    I32_MAX,
    BackendSettings,
    ConfigError,
    FilePath,
    Name,
    Seconds,
)

Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
RemoteModel = Annotated[str, Meta(min_length=1, max_length=256)]
Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]
AnswerBytes = Annotated[int, Meta(ge=1024, le=HIGHEST_ANSWER_BYTES)]
EventBytes = Annotated[int, Meta(ge=1024, le=HIGHEST_EVENT_BYTES)]


class RemoteSettings(BackendSettings, frozen=True, kw_only=True):
    """A backend on another machine, or in another program of this one."""

    default_path: ClassVar[str] = "/v1"
    """The path of a ``base_url`` that has none."""
    takes_sockets: ClassVar[bool] = False
    """Whether a ``base_url`` may be the directory of a daemon's sockets."""
    base_url: str
    """``https://HOST``, ``http://127.0.0.1:PORT`` or ``unix:/PATH`` of a socket; without a path
    it is ``/v1``. Plain HTTP goes to this machine alone."""
    model: RemoteModel
    """The model's name there."""
    expect_model: RemoteModel | None = None
    """The name of the model that answers must have. Default: it is not compared, since many
    servers answer with another name than they are asked by."""
    api_key_env: Variable | None = None
    """The environment variable with the key. It is taken out of the environment that other
    workers get."""
    api_key_credential: Name | None = None
    """The credential of the service with the key (``LoadCredential=`` of systemd): a file in
    ``$CREDENTIALS_DIRECTORY``. Unlike a variable it is read anew for each worker."""
    ca_file: FilePath | None = None
    """Certificates, in PEM, of who may vouch for the remote. Default: those of the system."""
    trusted_uids: Annotated[tuple[Uid, ...], Meta(max_length=16)] = ()
    """Users, besides root and the daemon's own, who may listen at the remote's Unix socket.
    Others are sent nothing."""
    route_unnamed: bool = False
    """Send it requests without ``model``, too. Otherwise prompts leave the machine for those
    that name it alone."""
    max_requests_per_minute: Annotated[int, Meta(ge=1, le=I32_MAX)] | None = None
    """Requests that may begin there in a minute. Default: as many as there are."""
    max_tokens_per_day: Annotated[int, Meta(ge=1, le=HIGHEST_DAY_TOKENS)] | None = None
    """Tokens of prompts and answers together that may be used there in a day of UTC. While a
    request runs, its prompt and its ``max_tokens`` count; then what the remote has counted.
    Default: as many as are asked for."""
    n_ctx: Annotated[int, Meta(ge=1, le=I32_MAX)] | None = None
    """Tokens of one request there, prompt and answer. Default: unknown, and not compared."""
    connect_timeout_s: Seconds = CONNECT_TIMEOUT_S
    """Seconds until it is connected, with TLS."""
    first_token_timeout_s: Seconds = FIRST_TOKEN_TIMEOUT_S
    """Seconds from there to the first token."""
    stall_timeout_s: Seconds = STALL_TIMEOUT_S
    """Seconds between two tokens."""
    answer_timeout_s: Seconds = ANSWER_TIMEOUT_S
    """Seconds of the whole answer."""
    max_answer_bytes: AnswerBytes = MAX_ANSWER_BYTES
    """Bytes that the remote may send for one answer."""
    max_event_bytes: EventBytes = MAX_EVENT_BYTES
    """Bytes of one event of it."""


R = TypeVar("R", bound=RemoteSettings)


def credential_of(settings: RemoteSettings) -> Credential | None:
    """Return where the key is."""
    if settings.api_key_env is None and settings.api_key_credential is None:
        return None
    return Credential(settings.api_key_env, settings.api_key_credential)


def find_contradiction(settings: RemoteSettings) -> Contradiction | None:
    """Find settings that do not go together."""
    if settings.api_key_env is not None and settings.api_key_credential is not None:
        return Contradiction(
            "api_key_env", settings.api_key_env, "no api_key_credential"
        )
    if settings.ca_file is not None and not _is_https(settings):
        return Contradiction("ca_file", settings.ca_file, "a base_url with https")
    is_socket = settings.base_url.startswith((SOCKET_PREFIX, SOCKETS_PREFIX))
    if settings.trusted_uids and not is_socket:
        uids = list(settings.trusted_uids)
        return Contradiction("trusted_uids", uids, "a base_url with unix:")
    return None


def _is_https(settings: RemoteSettings) -> bool:
    return settings.base_url.lower().startswith("https:")


def locate_remote(settings: R, _: FindModel) -> R:
    """Check the address, and make the path of the certificates absolute."""
    try:
        remote = parse_address(settings.base_url, settings.default_path)
    except ValueError as error:
        raise ConfigError(f"backend {settings.name}: base_url: {error}") from None
    if remote.scheme == "sockets" and not settings.takes_sockets:
        text = f"backend {settings.name}: base_url: only kind inferd takes sockets:"
        raise ConfigError(text)
    if settings.ca_file is None:
        return settings
    path = absolute_path(settings.ca_file, backend=settings.name, key="ca_file")
    return replace(settings, ca_file=path)


def sandbox_of(_settings: RemoteSettings) -> Sandbox:
    """Return the sandbox with a network."""
    return Sandbox.REMOTE


def takes_no_memory(_settings: RemoteSettings) -> MemoryPolicy:
    """Have no part in the memory plan."""
    return MemoryPolicy.NONE


def remote_kind(
    settings: type[R],
    program: str,
    contradiction: Callable[[R], Contradiction | None] = find_contradiction,
) -> BackendKind[R]:
    """Make the record of a kind of remote engines: all but its settings is the same.

    Args:
        settings: its table of the configuration.
        program: the module of its worker.
        contradiction: finds settings that do not go together, those of any remote included.
    """
    return BackendKind(
        settings=settings,
        served_by=InWorker(
            program=program,
            sandbox=sandbox_of,
            memory=takes_no_memory,
            credential=credential_of,
        ),
        extra=None,  # what asks them is installed in any case
        doctor=DoctorPolicy(files=no_files, without_hashes=_unchanged, needs=[]),
        file_format=None,
        contradiction=contradiction,
        rungs=no_rungs,
        locate=locate_remote,
    )


def _unchanged(settings: R) -> R:
    """Return settings without digests of files: these have none."""
    return settings
