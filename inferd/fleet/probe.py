"""How each member is: asked over HTTP, all side by side."""

import re
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Final, TypeVar

import httpx2
import msgspec
import trio
from msgspec import Struct

from inferd.fleet.bounds import MAX_PROBE_BYTES, PROBE_S, PROBES_AT_ONCE
from inferd.fleet.file import Fleet, FleetError, FleetMember

T = TypeVar("T")
BRIDGE: Final = "inferd-bridge"
"""What a bridge calls itself."""
_RUNNING: Final = re.compile(rb"^inferd_bridge_running ([0-9.e+]+)$", re.MULTILINE)
_OK: Final = 200
_REFUSED: Final = (401, 403)


class Condition(StrEnum):
    """What a member can do now."""

    READY = "ready"
    NOT_READY = "not_ready"
    """Its bridge answers, its daemon does not."""
    REFUSED = "refused"
    """It does not take the token."""
    UNREACHABLE = "unreachable"
    """It does not answer, or not as a bridge does."""


class MemberState(Struct, kw_only=True):
    """What a member told of itself."""

    name: str
    url: str
    condition: Condition
    drained: bool
    version: str | None = None
    models: list[str] = []
    running: int | None = None
    """Requests that run or wait there; ``None`` if it has not told."""
    is_gone: bool = False
    """Whether connections to it are refused: nothing listens there."""
    reason: str | None = None


class _ServerInfo(Struct):
    name: str
    version: str


class _Model(Struct):
    id: str


class _ModelList(Struct):
    data: list[_Model]


class _ProbeError(Exception):
    """A member is not as it should be."""

    def __init__(
        self, condition: Condition, reason: str, *, is_gone: bool = False
    ) -> None:
        super().__init__(reason)
        self.condition = condition
        self.is_gone = is_gone


async def probe_fleet(
    fleet: Fleet,
    drained: Collection[str],
    transport: httpx2.AsyncBaseTransport | None = None,
) -> list[MemberState]:
    """Ask all members, and return their states in the order of the file.

    Args:
        fleet: with its members and the token for them.
        drained: names of those that get no new requests.
        transport: carries the questions; by default connections of this machine.

    Bounds: ``PROBES_AT_ONCE`` members at once, ``PROBE_S`` for an answer.

    Raises:
        FleetError: ``ca_file`` cannot be used.
    """
    states = [
        MemberState(
            name=member.name,
            url=member.url,
            condition=Condition.UNREACHABLE,
            drained=member.name in drained,
        )
        for member in fleet.members
    ]
    limiter = trio.CapacityLimiter(PROBES_AT_ONCE)
    async with _client(fleet, transport) as client, trio.open_nursery() as nursery:
        for member, state in zip(fleet.members, states, strict=True):
            nursery.start_soon(_probe, client, member, state, limiter)
    return states


def _client(
    fleet: Fleet, transport: httpx2.AsyncBaseTransport | None
) -> httpx2.AsyncClient:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if any(member.parts.scheme == "https" for member in fleet.members):
        context.load_default_certs()  # which takes a quarter of a second
    if fleet.settings.ca_file:
        path = fleet.place(fleet.settings.ca_file)
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise FleetError(f"{path}: {error.strerror or error}") from error
    headers = {"authorization": f"Bearer {fleet.token}"} if fleet.token else {}
    return httpx2.AsyncClient(
        headers=headers,
        timeout=PROBE_S,
        verify=context,
        trust_env=False,
        transport=transport,
    )


async def _probe(
    client: httpx2.AsyncClient,
    member: FleetMember,
    state: MemberState,
    limiter: trio.CapacityLimiter,
) -> None:
    async with limiter:
        try:
            await _ask_all(client, member, state)
            state.condition = Condition.READY
        except _ProbeError as error:
            state.condition, state.reason = error.condition, str(error)
            state.is_gone = error.is_gone


async def _ask_all(
    client: httpx2.AsyncClient, member: FleetMember, state: MemberState
) -> None:
    await _ask(client, member, "/health")
    info = _decode(await _ask(client, member, "/server_info"), _ServerInfo)
    if info.name != BRIDGE:
        raise _ProbeError(Condition.UNREACHABLE, f"it is no bridge, but {info.name}")
    state.version = info.version
    metrics = await _ask(client, member, "/metrics")
    if match := _RUNNING.search(metrics):
        state.running = int(float(match[1]))
    await _ask(client, member, "/ready")
    models = _decode(await _ask(client, member, "/v1/models"), _ModelList)
    state.models = [each.id for each in models.data]


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise _ProbeError(
            Condition.UNREACHABLE, f"it does not answer as a bridge does: {error}"
        ) from error


async def _ask(client: httpx2.AsyncClient, member: FleetMember, path: str) -> bytes:
    """Return the body of an answer.

    Raises:
        _ProbeError: there is none, or its status is not 200.
    """
    data = bytearray()
    try:
        with trio.fail_after(PROBE_S):
            async with (
                client.stream("GET", f"{member.url}{path}") as response,
                aclosing(response.aiter_bytes()) as chunks,
            ):
                async for chunk in chunks:
                    _add(data, chunk, path)
    except trio.TooSlowError as error:
        text = f"{path}: no answer within {PROBE_S:g} s"
        raise _ProbeError(Condition.UNREACHABLE, text) from error
    except httpx2.HTTPError as error:
        causes = list(_causes(error))
        text = f"{path}: {_tls_reason(causes) or str(error) or type(error).__name__}"
        raise _ProbeError(
            Condition.UNREACHABLE, text, is_gone=_is_refused(causes)
        ) from error
    if response.status_code != _OK:
        refused = response.status_code in _REFUSED
        condition = Condition.REFUSED if refused else Condition.NOT_READY
        raise _ProbeError(condition, f"{path}: status {response.status_code}")
    return bytes(data)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and all that it came from."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from _causes(each)
        error = error.__cause__ or error.__context__


def _tls_reason(causes: Sequence[BaseException]) -> str:
    """Say why TLS failed; empty if it did not."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is refused: {cause.verify_message.rstrip('.')}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason or cause}"
    return ""


def _is_refused(causes: Sequence[BaseException]) -> bool:
    """Tell whether each attempt to connect was refused."""
    attempts = [each for each in causes if isinstance(each, OSError) and each.errno]
    return bool(attempts) and all(
        isinstance(each, ConnectionRefusedError) for each in attempts
    )


def _add(data: bytearray, chunk: bytes, path: str) -> None:
    data += chunk
    if len(data) > MAX_PROBE_BYTES:
        text = f"{path}: over {MAX_PROBE_BYTES} bytes"
        raise _ProbeError(Condition.UNREACHABLE, text)


def differences(states: Sequence[MemberState]) -> list[str]:
    """Say in what members that are ready differ, which should not."""
    ready = [each for each in states if each.condition is Condition.READY]
    found = [
        f"{each.name} has no model {model}, which others have"
        for each in ready
        for model in sorted({m for other in ready for m in other.models})
        if model not in each.models
    ]
    versions = {each.version for each in ready}
    if len(versions) > 1:
        found.append(f"versions differ: {', '.join(sorted(filter(None, versions)))}")
    return found
