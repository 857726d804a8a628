"""Decoders of pictures and sound: a process each, only so many at once, and shared out."""

import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import msgspec
import trio
from msgspec.structs import replace

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.media.fork_server import ForkServer, end_decoder
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.client.media.sound import BYTES_PER_S, SAMPLE_BYTES
from inferd.client.memfd import Memfd
from inferd.config.bridge import BridgeSettings
from inferd.fair_limiter import FairLimiter
from inferd.limits.media_decoder import (
    FORK_S,
    MAX_DECODED_FILES,
    MAX_REPORT_BYTES,
    WRITTEN_BYTES,
)
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.media_decoder.messages import (
    BYTES_PER_PIXEL,
    REPORT,
    DecodeMedium,
    DecoderReport,
)

_NAMES: Final = {"picture": "a picture", "sound": "audio"}


@dataclass(frozen=True)
class DecodedMedium:
    """Pixels or samples in a sealed memfd, as the daemon takes them.

    Ownership: the receiver's to ``close``, or to use in a ``with`` block.
    """

    fd: int
    """RGB octets, rows from the top; or little-endian 32-bit floats of one channel."""
    n_bytes: int
    width: int
    """Pixels of a row; 0 for sound."""
    height: int
    _on_close: Callable[[], None]

    @property
    def n_samples(self) -> int:
        """Samples of sound, 16,000 a second."""
        return self.n_bytes // SAMPLE_BYTES

    def close(self) -> None:
        """Close the descriptor, once."""
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Forked(NamedTuple):
    """A decoder."""

    pidfd: int
    """A descriptor of its process."""
    server: ForkServer
    """What forked it."""


class _UndecodableError(Exception):
    """A file that cannot be decoded; its text says why."""


class MediaDecoders:
    """Decodes files of callers, each in a confined process of its own.

    One principal has all processes but one at most, and half of the bytes and descriptors that
    are held.

    Args:
        settings: the bounds.
        log: told what the kernel lacks to confine the processes.

    Ownership: ``close`` it in the end.
    """

    def __init__(self, settings: BridgeSettings, log: BridgeLog) -> None:
        self._settings = settings
        self._log = log
        self._limiter = FairLimiter(settings.media_decoders)
        self._bytes = SharedLimit(settings.max_decoded_bytes)
        self._files = SharedLimit(MAX_DECODED_FILES, least=MAX_ATTACHMENTS)
        self._forking = trio.Lock()
        self._server: ForkServer | None = None
        """Forks the next decoder; one that has failed is replaced."""
        self._n_decoders: Counter[ForkServer] = Counter()
        """Decoders that run, by the process that forked them and that they end with."""

    @property
    def n_running(self) -> int:
        """Files that are being decoded."""
        return self._limiter.n_active

    @property
    def n_held_bytes(self) -> int:
        """Bytes of what was decoded and is not closed."""
        return self._bytes.total

    def close(self) -> None:
        """End all processes."""
        self._replace()
        for server in self._n_decoders:
            server.kill()

    def _replace(self) -> None:
        """Have the next decoder forked by another process; this one ends with its decoders."""
        server, self._server = self._server, None
        if server is not None and not self._n_decoders[server]:
            self._end(server)

    def _end(self, server: ForkServer) -> None:
        del self._n_decoders[server]
        server.kill()

    async def decode_picture(
        self, data: bytes, *, place: str, principal: str, n_before: int = 0
    ) -> DecodedMedium:
        """Decode the first image of a file, upright, on a white background.

        Args:
            data: the file.
            place: of the request's field that has it, for failures.
            principal: whose share this takes.
            n_before: bytes that the same request holds already.

        Raises:
            BridgeError: it cannot be decoded within the bounds.

        Cancellation: ends the process.
        """
        max_pixels = self._settings.max_picture_pixels
        task = self._task("picture", BYTES_PER_PIXEL * max_pixels)
        with self._failing(place):
            return await self._decode(task, data, principal, n_before)

    async def decode_sound(
        self, data: bytes, *, place: str, principal: str, n_before: int = 0
    ) -> DecodedMedium:
        """Decode the audio of a file to one channel; otherwise as ``decode_picture``.

        Raises:
            BridgeError: it cannot be decoded within the bounds, or not to its end.

        Cancellation: ends the process.
        """
        max_bytes = math.ceil(self._settings.max_sound_s) * BYTES_PER_S
        with self._failing(place):
            task = self._task("sound", max_bytes)
            return await self._decode(task, data, principal, n_before)

    def _task(self, kind: Literal["picture", "sound"], max_bytes: int) -> DecodeMedium:
        return DecodeMedium(
            kind=kind,
            max_pixels=self._settings.max_picture_pixels,
            max_bytes=max_bytes,
            max_cpu_s=math.ceil(self._settings.media_decode_s),
        )

    async def _decode(
        self, task: DecodeMedium, data: bytes, principal: str, n_before: int
    ) -> DecodedMedium:
        async with self._limiter.acquire(principal):
            with ExitStack() as opened:
                target = opened.enter_context(Memfd())
                report = await self._run(task, data, target)
                n_bytes = os.fstat(target.fd).st_size
                if fault := report.fault or _implausible(task, report, n_bytes):
                    raise _UndecodableError(
                        f"cannot be decoded as {_NAMES[task.kind]}: {fault}"
                    )
                target.seal()
                opened.enter_context(self._held(principal, n_bytes, n_before))
                held = opened.pop_all()
        return DecodedMedium(
            target.fd, n_bytes, report.width, report.height, held.close
        )

    @contextmanager
    def _held(self, principal: str, n_bytes: int, n_before: int) -> Iterator[None]:
        """Hold bytes and a descriptor of a principal inside.

        Raises:
            BridgeError: it, or all, hold too many.
        """
        if n_before + n_bytes > self._bytes.share:
            raise BridgeError(
                Reason.TOO_LARGE,
                "the pictures and recordings of the request are too large: decoded, they "
                f"have over {self._bytes.share} bytes",
            )
        with ExitStack() as taken:
            for limit, n in (self._files, 1), (self._bytes, n_bytes):
                if not limit.take(principal, n):
                    raise BridgeError(
                        Reason.QUEUE_FULL,
                        "too many pictures and recordings at once",
                        retry_after_s=1.0,
                    )
                taken.callback(limit.give_back, principal, n)
            yield

    @contextmanager
    def _failing(self, place: str) -> Iterator[None]:
        """Turn what fails inside into a failure of a request, with the place of its field."""
        try:
            yield
        except _UndecodableError as error:
            raise invalid(place, str(error)) from error
        except OSError as error:  # no descriptor, or no memory
            raise _unavailable() from error

    async def _run(
        self, task: DecodeMedium, data: bytes, target: Memfd
    ) -> DecoderReport:
        """Have a process decode; return what it says at its end."""
        limit_s = self._settings.media_decode_s
        async with self._forked(task, data, target) as (pidfd, report):
            with trio.move_on_after(limit_s) as scope:
                await trio.lowlevel.wait_readable(pidfd)
            if scope.cancelled_caught:
                return DecoderReport(fault=f"decoding it takes over {limit_s:g} s")
            return _read_report(report)

    @asynccontextmanager
    async def _forked(
        self, task: DecodeMedium, data: bytes, target: Memfd
    ) -> AsyncIterator[tuple[int, int]]:
        """Run a process inside; yield descriptors of it, readable at its end, and its report."""
        with ExitStack() as opened:
            report, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            opened.callback(os.close, report)
            with _closing(writing), Memfd() as source:
                await _fill(source, data)
                fds = (source.fd, target.fd, writing)
                pidfd, server = await self._fork(task, fds)
            opened.callback(os.close, pidfd)
            try:
                yield pidfd, report
            finally:
                end_decoder(pidfd)
                with trio.CancelScope(shield=True):  # the permit is for a process
                    await trio.lowlevel.wait_readable(pidfd)
                self._n_decoders[server] -= 1
                if server is not self._server and not self._n_decoders[server]:
                    self._end(server)

    async def _fork(self, task: DecodeMedium, fds: Sequence[int]) -> _Forked:
        """Have a process forked.

        Raises:
            BridgeError: there is none.
        """
        forked = None
        deadline = trio.current_time() + FORK_S
        with suppress(OSError), trio.CancelScope(deadline=deadline, shield=True):
            async with self._forking:
                forked = await self._fork_next(task, fds)
        if forked is None:
            raise _unavailable()
        return forked

    async def _fork_next(
        self, task: DecodeMedium, fds: Sequence[int]
    ) -> _Forked | None:
        if self._server is not None:
            with suppress(OSError):  # it may have ended since
                return await self._fork_once(task, fds)
        return await self._fork_once(task, fds)

    async def _fork_once(
        self, task: DecodeMedium, fds: Sequence[int]
    ) -> _Forked | None:
        try:
            server = self._server or await self._start()
            pidfd = await server.fork(task, fds)
        except BaseException:
            self._replace()
            raise
        if pidfd is None:
            return None
        self._n_decoders[server] += 1
        return _Forked(pidfd, server)

    async def _start(self) -> ForkServer:
        server = self._server = ForkServer()
        ready = await server.wait_ready()
        if ready.not_installed:
            raise BridgeError(
                Reason.UNSUPPORTED,
                "pictures and sound are not served: the bridge lacks the packages of "
                "inferd[media]",
            )
        self._log.write(
            "warn" if ready.missing else "info",
            "media_decoder.confined",
            pid=server.pid,
            missing="; ".join(ready.missing) or None,
        )
        return server


@contextmanager
def _closing(fd: int) -> Iterator[None]:
    """Close a descriptor on leaving."""
    try:
        yield
    finally:
        os.close(fd)


async def _fill(memory: Memfd, data: bytes) -> None:
    """Copy a file into a memfd, and seal it."""
    for start in range(0, len(data), WRITTEN_BYTES):
        memory.write(data[start : start + WRITTEN_BYTES])
        await trio.lowlevel.checkpoint()
    memory.seal()


def _read_report(fd: int) -> DecoderReport:
    """Read what a process that has ended has said; its words are nobody's to trust."""
    with suppress(BlockingIOError, msgspec.DecodeError):
        report = REPORT.decode(os.read(fd, MAX_REPORT_BYTES))
        return replace(report, fault=_printable(report.fault))
    return DecoderReport(
        fault="its decoder has ended before it was done: it is broken, or takes too much "
        "memory or time"
    )


def _printable(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text)


def _implausible(task: DecodeMedium, report: DecoderReport, n_bytes: int) -> str:
    """Tell what is wrong with what was decoded; empty if nothing is."""
    n_pixels = report.width * report.height
    if task.kind == "picture":
        is_whole = n_pixels and n_bytes == BYTES_PER_PIXEL * n_pixels
    else:
        is_whole = n_bytes and not n_bytes % SAMPLE_BYTES and not n_pixels
    is_valid = is_whole and n_bytes <= task.max_bytes
    return "" if is_valid else "its decoder returned something else"


def _unavailable() -> BridgeError:
    return BridgeError(
        Reason.UNAVAILABLE,
        "pictures and recordings cannot be decoded now",
        retry_after_s=1.0,
    )
