"""Download of one file into the store: resumed, bounded, and checked while it is written."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from inferd.limits.models import (
    BLOB_BLOCK_BYTES,
    PULL_ANSWER_S,
    PULL_CONNECT_S,
    PULL_MAX_BYTES,
    PULL_MAX_CONNECTIONS,
    PULL_RETRY_BYTES,
    PULL_STALL_BYTES,
    PULL_STALL_S,
)
from inferd.models.kinds import MAGIC_BYTES, kind_of
from inferd.models.pull.errors import DroppedError, PullError, StalledError
from inferd.models.pull.messages import End, Fetch, Head
from inferd.models.pull.process import Downloader
from inferd.models.pull.record import (
    DownloadRecord,
    read_record,
    remove_record,
    write_record,
)
from inferd.models.pull.stall import StallWatch
from inferd.models.store.blobs import PartialFile, hash_file
from inferd.models.store.directory import BLOBS, StoreDirectory

Progress = Callable[[int, int | None], object]
"""Is called with the bytes that are done, and all bytes of the file if they are known."""

_SHOWN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file that is to be in the store."""

    name: str
    url: str
    sha256: str
    n_bytes: int | None = None
    """As the hub states it; ``None`` for what the server says."""
    token: str = ""
    """For the host of the address."""


@dataclass(frozen=True, slots=True)
class DownloadBounds:
    """How long and how much a download may be."""

    answer_s: float = PULL_CONNECT_S + PULL_ANSWER_S
    """Until the header of a response."""
    stall_s: float = PULL_STALL_S
    stall_bytes: int = PULL_STALL_BYTES
    """That come in ``stall_s`` at least."""
    max_bytes: int = PULL_MAX_BYTES
    """Of a file whose length nobody states."""
    retry_bytes: int = PULL_RETRY_BYTES
    """That a connection has brought for the next one to be made at once when it drops."""


def has_file(directory: StoreDirectory, wanted: WantedFile) -> bool:
    """Tell whether the store has a file; one of unknown size is read and compared."""
    try:
        descriptor = directory.open_file(BLOBS, wanted.sha256)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb"):
        if wanted.n_bytes is not None:
            return os.fstat(descriptor).st_size == wanted.n_bytes
        return hash_file(descriptor, lambda _: None) == wanted.sha256


def download(  # noqa: PLR0913, PLR0917  # what it takes
    directory: StoreDirectory,
    downloader: Downloader,
    wanted: WantedFile,
    progress: Progress,
    bounds: DownloadBounds,
    held: ExitStack | None = None,
) -> None:
    """Have a file in the store.

    Ended at any moment, the store has the file or not; what came is kept beside it, and the
    next download of the same SHA-256 goes on behind it.

    Args:
        directory: of the store.
        downloader: that makes the connections.
        wanted: the file.
        progress: is called with the bytes that have come.
        bounds: of the download.
        held: until it ends, the file is not removed as one that no model uses.

    Raises:
        PullError: the server does not send the file.
        StoreError: another command is writing it, or the file system is full.
        DigestError: what the server sends is another file.
    """
    key = f"pull-{wanted.sha256}"
    with ExitStack() as opened:
        partial = (held or opened).enter_context(PartialFile(directory, key))
        _Download(directory, downloader, wanted, partial, key, bounds).run(progress)
        try:
            partial.finish(wanted.sha256)
        finally:
            remove_record(directory, key)


class _Download:
    """One download: its connections, until the file is complete."""

    def __init__(  # noqa: PLR0913, PLR0917  # what download has
        self,
        directory: StoreDirectory,
        downloader: Downloader,
        wanted: WantedFile,
        partial: PartialFile,
        key: str,
        bounds: DownloadBounds,
    ) -> None:
        self._directory = directory
        self._downloader = downloader
        self._wanted = wanted
        self._partial = partial
        self._key = key
        self._bounds = bounds
        self._host = urlsplit(wanted.url).hostname
        self._begin = b""
        """Bytes that are too few to tell whether they begin a model."""

    def run(self, progress: Progress) -> None:
        """Make connections until the file is complete."""
        for _ in range(PULL_MAX_CONNECTIONS):
            n_before, was_begun = self._partial.n_bytes, self._partial.n_bytes > 0
            with suppress(_DroppedLateError):
                self._connect(n_before, progress)
                if not was_begun or self._is_complete():
                    return
                # the server had another file when the first bytes came, or says so now
                self._partial.restart()
        raise DroppedError(
            f"{self._host} ended {PULL_MAX_CONNECTIONS} connections in the midst of "
            f"{self._wanted.name}"
        )

    def _connect(self, n_before: int, progress: Progress) -> None:
        record = read_record(self._directory, self._key)
        known = self._wanted.n_bytes
        if known is None and record is not None and record.url == self._wanted.url:
            known = record.n_bytes
        if n_before and (n_before == known or self._is_complete()):
            return
        try:
            self._receive(record, progress)
        except (DroppedError, StalledError) as error:
            if self._is_complete():
                return  # the server has announced more than the file has
            if isinstance(error, StalledError):
                raise
            if self._partial.n_bytes - n_before >= self._bounds.retry_bytes:
                raise _DroppedLateError from error
            raise

    def _is_complete(self) -> bool:
        return self._partial.sha256() == self._wanted.sha256

    def _receive(self, record: DownloadRecord | None, progress: Progress) -> None:
        """Make one connection, and write what it brings."""
        wanted = self._wanted
        is_same = record is not None and record.url == wanted.url
        self._downloader.send(
            Fetch(
                url=wanted.url,
                offset=self._partial.n_bytes,
                etag=record.etag if record is not None and is_same else "",
                is_pinned=True,
                token=wanted.token,
            )
        )
        reply = self._downloader.receive(self._bounds.answer_s)
        if not isinstance(reply, Head):
            raise PullError(f"the downloader sent {reply!r:.50} instead of a header")
        total = self._begin_at(reply)
        progress(self._partial.n_bytes, total)
        watch = StallWatch(
            time.monotonic(), self._bounds.stall_s, self._bounds.stall_bytes
        )
        while True:
            data = self._downloader.receive(self._bounds.stall_s)
            if isinstance(data, End):
                break
            if not isinstance(data, bytes):
                raise PullError(f"the downloader sent {data!r:.50} instead of bytes")
            self._write(data, total)
            progress(self._partial.n_bytes, total)
            if watch.is_stalled(time.monotonic(), len(data)):
                raise StalledError(
                    f"{self._host} sent fewer than {self._bounds.stall_bytes} bytes in "
                    f"{self._bounds.stall_s:g} s",
                    "type the same command again: it goes on where it stopped",
                )
        self._end(total)

    def _begin_at(self, head: Head) -> int | None:
        """Prepare for the bytes that a header announces; return those of the file.

        Raises:
            PullError: they are not those of the file that is wanted.
            StoreError: there is no space for them.
        """
        wanted, total = self._wanted, head.n_bytes
        if None not in {wanted.n_bytes, total} and wanted.n_bytes != total:
            raise PullError(
                f"{self._host} has {total} bytes for {wanted.name}, and the hub states "
                f"{wanted.n_bytes}",
                "the file is being changed: try again later, or another revision",
            )
        if head.offset not in {0, self._partial.n_bytes}:
            raise PullError(f"the downloader sent bytes from {head.offset}")
        if head.offset == 0:
            self._partial.restart()
        self._begin = b""
        total = wanted.n_bytes if total is None else total
        if total is not None:
            self._partial.reserve(total)
        write_record(
            self._directory,
            self._key,
            DownloadRecord(url=wanted.url, etag=head.etag, n_bytes=total),
        )
        return total

    def _write(self, data: bytes, total: int | None) -> None:
        n_bytes = self._partial.n_bytes + len(self._begin) + len(data)
        most = self._bounds.max_bytes if total is None else total
        if n_bytes > most:
            raise PullError(
                f"{self._host} sends more than {most} bytes for {self._wanted.name}",
                "" if total is not None else "allow more: --max-bytes BYTES",
            )
        if self._partial.n_bytes == 0:
            self._begin += data
            if len(self._begin) < MAGIC_BYTES:
                return
            data, self._begin = self._begin, b""
            self._check_begin(data)
        if total is None:
            self._partial.reserve(n_bytes + BLOB_BLOCK_BYTES)
        self._partial.write(data)

    def _check_begin(self, data: bytes) -> None:
        """Refuse another kind of file at its first bytes, before gigabytes of it come."""
        if kind_of(data) is not None:
            return
        shown = data[:_SHOWN_BYTES]
        what = "a page" if data.lstrip()[:1] == b"<" else "something else"
        raise PullError(
            f"{self._host} sends {what} for {self._wanted.name}: neither a GGUF file nor "
            f"a model of whisper.cpp begins with {shown!r}",
            "give the address of the file, as a link to download has it",
        )

    def _end(self, total: int | None) -> None:
        if self._partial.n_bytes == 0:
            raise PullError(f"{self._host} sent {len(self._begin)} bytes, no model")
        if total is not None and self._partial.n_bytes != total:
            raise DroppedError(
                f"{self._host} ended after {self._partial.n_bytes} of {total} bytes",
                "type the same command again: it goes on where it stopped",
            )


class _DroppedLateError(Exception):
    """A connection ended after it brought much: the next one goes on."""
