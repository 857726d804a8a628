"""Play a vector against a daemon: plain sockets, and a bound on everything."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from protocol.matching import Frame, Json, Matcher, quote
from protocol.vector import LEAVES, Step, Vector, to_bytes

TERMINAL: Final = frozenset({"done", "error", "embeddings", "rerank"})
"""The types of frames that end a request."""

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one line, as the protocol has it. A copy: this program uses nothing of inferd."""
SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
READ_BYTES: Final = 64 * 1024
PAUSE_S: Final = 0.01
"""Seconds before something is tried again."""

NO_TOKENS: Final[Frame] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 0,
    "stream": False,
}
PASSING: Final = ("queue_full", "backend_unavailable")
"""Refusals that are over when the exchange before is."""

Trace = Callable[[str, str, bytes], None]
"""Is told the connection, ``>`` or ``<``, and what was sent or one frame that came."""


class MismatchError(Exception):
    """The daemon did something else than the vector says."""


class UnreachableError(Exception):
    """No daemon serves in this directory."""


class Wire:
    """One connection. Whatever it waits for has come by ``deadline``, or a mismatch has.

    Args:
        path: of the socket.
        deadline: a moment of ``time.monotonic``.
    """

    def __init__(self, path: Path, deadline: float) -> None:
        self._deadline = deadline
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect(path)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send bytes, for as long as the daemon takes them; descriptors go with the first."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.settimeout(self._left_s())
            try:
                n_sent = socket.send_fds(self._socket, [data], fds) if fds else 0
                self._socket.sendall(data[n_sent:])
            except TimeoutError:
                raise MismatchError("the daemon does not read what is sent") from None

    def end_of_sending(self) -> None:
        """Shut down the sending side, and go on reading."""
        with suppress(OSError):  # the daemon may have closed the connection
            self._socket.shutdown(socket.SHUT_WR)

    def line(self) -> bytes | None:
        """Read one frame without its newline; ``None`` at the end of the connection."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_FRAME_BYTES:
                raise MismatchError("a frame over the cap came")
            data = self._receive()
            if not data:
                if self._buffer:
                    raise MismatchError(f"half a frame came: {bytes(self._buffer)!r}")
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _connect(self, path: Path) -> None:
        while True:
            self._socket.settimeout(self._left_s())
            try:
                return self._socket.connect(str(path))
            except BlockingIOError:  # the backlog is full: it is not connected
                time.sleep(PAUSE_S)
            except OSError as error:
                raise MismatchError(f"cannot connect to {path}: {error}") from error

    def _receive(self) -> bytes:
        self._socket.settimeout(self._left_s())
        try:
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise MismatchError("nothing came in time") from None
        except ConnectionResetError:
            return b""  # closed before it had read all that was sent

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise MismatchError("time is up")
        return left_s


def play(
    vector: Vector,
    directory: Path,
    *,
    timeout_s: float,
    trace: Trace = lambda *_: None,
) -> None:
    """Play one vector against the daemon of a directory.

    Raises:
        MismatchError: the daemon did something else; says at which step, what was
            expected and what came.
    """
    deadline = time.monotonic() + timeout_s
    matcher = Matcher()
    wires: dict[str, Wire] = {}
    with ExitStack() as stack:
        for number, step in enumerate(vector.exchange, 1):
            try:
                if step.on not in wires:
                    wire = Wire(directory / LEAVES[step.surface], deadline)
                    wires[step.on] = stack.enter_context(wire)
                _take(step, wires[step.on], matcher, trace)
            except MismatchError as error:
                raise MismatchError(f"step {number}, on {step.on}: {error}") from error


def _take(step: Step, wire: Wire, matcher: Matcher, trace: Trace) -> None:
    match step.action:
        case "send" | "send_raw":
            trace(step.on, ">", step.data)
            with sealed_files(step.fds) as fds:
                wire.send(step.data, fds)
        case "end_of_sending":
            wire.end_of_sending()
        case "expect":
            _compare(step, _frame(step, wire, trace), matcher)
        case "expect_terminal":
            frame = _frame(step, wire, trace)
            while frame.get("type") not in TERMINAL:
                frame = _frame(step, wire, trace)
            _compare(step, frame, matcher)
        case _:  # expect_close
            line = wire.line()
            if line is not None:
                raise MismatchError(f"expected the end, came {line!r}")


@contextmanager
def sealed_files(contents: Iterable[Json]) -> Iterator[list[int]]:
    """Put each in a file in memory, which nobody can change; close them on leaving."""
    fds: list[int] = []
    try:
        for content in contents:
            fds.append(os.memfd_create("vector", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
            os.write(fds[-1], to_bytes(content))
            fcntl.fcntl(fds[-1], fcntl.F_ADD_SEALS, SEALS)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _frame(step: Step, wire: Wire, trace: Trace) -> Frame:
    try:
        line = wire.line()
    except MismatchError as error:
        raise MismatchError(f"{error}; expected {quote(step.value)}") from error
    if line is None:
        raise MismatchError(f"the end came; expected {quote(step.value)}")
    trace(step.on, "<", line)
    return read_frame(line)


def _compare(step: Step, frame: Frame, matcher: Matcher) -> None:
    if found := matcher.difference(step.value, frame):
        raise MismatchError(
            f"{found}; expected {quote(step.value)}, came {quote(frame)}"
        )


def read_frame(line: bytes) -> Frame:
    """Read one frame strictly: JSON has no NaN, and a frame is an object.

    Raises:
        MismatchError: it is none.
    """
    try:
        frame: Json = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MismatchError(f"no JSON came: {line!r} ({error})") from error
    if not isinstance(frame, dict):
        raise MismatchError(f"no object came: {line!r}")
    return frame


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def settle(directory: Path, *, timeout_s: float) -> None:
    """Wait until the daemon is ready and serves, whatever was asked of it before.

    It has then answered a request since its worker last started, if it generates.

    Raises:
        UnreachableError: there is no daemon, or it does not come to that in time.
    """
    deadline = time.monotonic() + timeout_s
    try:
        if (directory / LEAVES["admin"]).exists():
            _wait_until_ready(directory / LEAVES["admin"], deadline)
        sockets = [leaf for leaf in LEAVES.values() if (directory / leaf).exists()]
        for leaf in sockets:
            Wire(directory / leaf, deadline).close()
        if LEAVES["v1"] in sockets:
            _wait_until_served(directory / LEAVES["v1"], deadline)
    except MismatchError as error:
        raise UnreachableError(f"the daemon in {directory}: {error}") from error
    if not sockets:
        raise UnreachableError(f"no socket of a daemon in {directory}")


def _wait_until_ready(path: Path, deadline: float) -> None:
    with Wire(path, deadline) as wire:
        while (line := wire.line()) is not None:
            if read_frame(line).get("status") == "ready":
                return
    raise MismatchError("it ended before it was ready")


def _wait_until_served(path: Path, deadline: float) -> None:
    while True:
        with Wire(path, deadline) as wire:
            wire.send(json.dumps(NO_TOKENS).encode() + b"\n")
            line = wire.line()
        if line is not None and read_frame(line).get("code") not in PASSING:
            return
        time.sleep(PAUSE_S)
