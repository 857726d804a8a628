"""Carry out one pull in a process of its own, which ends when nobody waits for it.

``python -m inferd.management.pulling``: the task is a line on stdin, which stays open as long
as the pull is wanted; frames go to stdout. Its end by SIGTERM leaves what ``inferd model
pull`` leaves when it is interrupted, so that the next pull goes on there.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import msgspec
from msgspec import Struct

from inferd.limits.bridge import HELPER_PROGRESS_S, HELPER_REQUEST_BYTES
from inferd.management.policy import HelperRefusedError
from inferd.management.store import managed_store
from inferd.models.packages.places import places_of_files
from inferd.models.packages.pull import PackagePuller
from inferd.models.packages.source import is_package_source, plan_package
from inferd.models.pull.download import DownloadBounds, Progress, WantedFile
from inferd.models.pull.errors import PullError
from inferd.models.pull.process import Downloader
from inferd.models.pull.pull import PullOptions, PullPlan, plan_pull, pull
from inferd.models.pull.source import parse_source
from inferd.models.store.blobs import DigestError, StoreFullError
from inferd.models.store.names import InvalidNameError
from inferd.models.store.store import ModelStore
from inferd.terminal import escape, print_json, print_stderr
from inferd.wire.management import (
    HelperDone,
    HelperFailure,
    HelperFrame,
    PullProgress,
    helper_line,
)


class PullTask(Struct, frozen=True, kw_only=True):
    """What is to be pulled, within which bounds."""

    source: str
    name: str | None
    sha256: str | None
    store: str
    """Path of the store."""
    max_bytes: int
    """Of all files of the model."""
    min_free_bytes: int
    """Of the file system, afterwards."""
    ca_file: str | None = None
    """Of the certificate authorities to trust; ``None`` for those of the system."""


TASKS: Final = msgspec.json.Decoder(PullTask)
Tell = Callable[[HelperFrame], None]


def main() -> None:
    """Carry out the task on stdin."""
    line = sys.stdin.buffer.readline(HELPER_REQUEST_BYTES)
    if not line.endswith(b"\n"):
        return  # nobody waits for it any more
    task = TASKS.decode(line)
    signal.signal(signal.SIGTERM, _unwind)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    tell(carry_out(task, tell))


def tell(frame: HelperFrame) -> None:
    """Write a frame to stdout."""
    print_json(helper_line(frame))


def _unwind(_number: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _end_with_stdin() -> None:
    """End this process when the one that wants the pull has closed its end, or has died."""
    os.read(sys.stdin.fileno(), 1)  # a buffer would be locked when Python ends
    os.kill(os.getpid(), signal.SIGTERM)


def carry_out(task: PullTask, progress: Tell) -> HelperDone | HelperFailure:
    """Pull a model.

    Args:
        task: what is pulled.
        progress: is given frames about it.

    Returns:
        The frame that ends the answer.
    """
    try:
        with managed_store(Path(task.store), makes=True) as store:
            return HelperDone(model=_pull(store, task, progress))
    except (InvalidNameError, PullError, HelperRefusedError) as error:
        print_stderr(f"pull failed: {error.__cause__ or error}")
        return failure_of_pull(error, task.store).frame


def failure_of_pull(error: Exception, store: str) -> HelperRefusedError:
    """Return what the bridge is told of a failure: no path of this machine."""
    match error.__cause__ or error:
        case StoreFullError():
            return HelperRefusedError(
                "no_space", "the file system of the store is full"
            )
        case DigestError():
            text = "a file that was sent has another SHA-256 than it should"
            return HelperRefusedError("failed", text)
        case PullError(text=text):
            return HelperRefusedError("failed", text.replace(store, "the store"))
        case InvalidNameError():
            return HelperRefusedError("invalid_request", str(error))
        case _:
            assert isinstance(error, HelperRefusedError)  # noqa: S101  # no other is caught
            return error


def _pull(store: ModelStore, task: PullTask, progress: Tell) -> str:
    """Pull a model; return its name."""
    progress(PullProgress(phase="plan"))
    bounds = _Bounds(store, task, progress)
    if is_package_source(task.source):
        planned = plan_package(task.source, task.name, task.sha256)
        bounds.check(planned.n_bytes or 0)
        places = places_of_files()
        with PackagePuller(store, os.environ, places) as puller:
            return planned.name if puller.has(planned) else puller.pull(planned).name
    source = parse_source(task.source, task.sha256)
    options = PullOptions(
        name=task.name, bounds=DownloadBounds(max_bytes=task.max_bytes)
    )
    with Downloader(os.environ, task.ca_file) as downloader:
        for missing in downloader.missing:
            print_stderr(f"note: the downloader's sandbox is weaker: {missing}")
        plan = plan_pull(store, downloader, source, options)
        bounds.check(_known_bytes(plan))
        return pull(store, downloader, plan, options.bounds, bounds.of_file).name


def _known_bytes(plan: PullPlan) -> int:
    """Return the bytes of a model's files, as far as they are known."""
    files = {wanted.sha256: wanted.n_bytes for wanted, _ in plan.files}
    return sum(n_bytes or 0 for n_bytes in files.values())


class _Bounds:
    """The bounds of one pull, and the frames about its progress.

    Args:
        store: that the model comes into.
        task: has the bounds.
        tell: is given the frames.
    """

    def __init__(self, store: ModelStore, task: PullTask, tell: Tell) -> None:
        self._store = store
        self._task = task
        self._tell = tell

    def check(self, n_bytes: int, n_done: int = 0) -> None:
        """Check the size of a model or a file.

        Args:
            n_bytes: of it.
            n_done: of which so many are there.

        Raises:
            HelperRefusedError: it has too many bytes, or too few would stay free.
        """
        if n_bytes > self._task.max_bytes:
            raise HelperRefusedError(
                "too_large",
                f"the model has {n_bytes} bytes; max_pull_bytes in [bridge_helper] of the "
                f"configuration is {self._task.max_bytes}",
            )
        free = self._store.directory.free_bytes()
        if free < n_bytes - n_done + self._task.min_free_bytes:
            raise HelperRefusedError(
                "no_space",
                f"the store's file system has {free} bytes free; {n_bytes - n_done} are "
                "needed, and min_free_bytes in [bridge_helper] of the configuration is "
                f"{self._task.min_free_bytes}",
            )

    def of_file(self, wanted: WantedFile) -> Progress:
        """Return what checks the size of a file and tells its progress."""
        told_at, checked = -HELPER_PROGRESS_S, wanted.n_bytes

        def progress(n_done: int, n_bytes: int | None) -> None:
            nonlocal told_at, checked
            if n_bytes is not None and n_bytes != checked:
                self.check(n_bytes, n_done)
            checked = n_bytes
            now = time.monotonic()
            if n_done != n_bytes and now - told_at < HELPER_PROGRESS_S:
                return
            told_at = now
            frame = PullProgress(
                phase="download",
                file=escape(wanted.name),
                sha256=wanted.sha256,
                done=n_done,
                total=n_bytes,
            )
            self._tell(frame)

        return progress


if __name__ == "__main__":
    main()
