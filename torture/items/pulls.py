"""R21: pulls of models that end at any byte, with the command, its downloader or the hub."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

from inferd.models.store.directory import BLOBS, PARTIAL, StoreDirectory
from inferd.models.store.manifest import Manifest
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from tests.daemon.harness import eventually
from tests.fakes.hub import Hub, running_hub
from tests.unit.models.store.stores import assert_whole
from torture.litter import children_of
from torture.outcome import Context

KEY: Final = "R21"
NAME: Final = "Pulls of models that end at any byte"

REPOSITORY: Final = "me/model-GGUF"
MODEL: Final = "torn"
PART_BYTES: Final = 150_000
"""Of each of the two parts of a model; the projector has a tenth."""
COMPLETED_ONE_IN: Final = 4
"""Pulls after which another one runs to its end, and the hub gets another model."""
AT_ONCE: Final = 4
"""Stores, each with a hub of its own, among which the pulls are shared out."""
COMMAND_S: Final = 300.0
_LOCK: Final = Lock()


def run(context: Context) -> None:
    """End pulls; the store is whole each time, with the old model or the new one."""
    n_pulls = context.pick(short=20, full=1000) // AT_ONCE
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seeds = [context.rng.randrange(2**32) for _ in range(AT_ONCE)]
        done = [pool.submit(_interrupt, context, seed, n_pulls) for seed in seeds]
    for each in done:
        each.result()


def _interrupt(context: Context, seed: int, n_pulls: int) -> None:
    rng = random.Random(seed)
    with running_hub() as hub, TemporaryDirectory(prefix="pulls-") as place:
        pulls = _Pulls(context, rng, hub, Path(place) / "models")
        for number in range(n_pulls):
            pulls.interrupt(number)
            if rng.randrange(COMPLETED_ONE_IN) == 0:
                pulls.complete()
        pulls.complete()


class _Pulls:
    """Pulls of one model, whose repository changes when a pull was complete."""

    def __init__(
        self, context: Context, rng: random.Random, hub: Hub, path: Path
    ) -> None:
        self._context = context
        self._rng = rng
        self._hub = hub
        self._path = path
        self._old: set[str] = set()
        self._new: set[str] = set()
        self._environ = os.environ | {
            "INFERD_MODELS": str(path),
            "HF_ENDPOINT": hub.endpoint,
            "SSL_CERT_FILE": str(hub.ca_file),
        }
        self._ends: tuple[tuple[str, Callable[[int], None]], ...] = (
            ("commands_killed", lambda pid: _signal(pid, signal.SIGKILL)),
            ("commands_interrupted", lambda pid: _signal(pid, signal.SIGINT)),
            ("downloaders_killed", _kill_children),
            ("connections_dropped", lambda _: None),
        )
        self._sizes: dict[str, int] = {}
        self._publish()

    def _publish(self) -> None:
        """Have another model in the repository, some files of which may be the same."""
        rng = self._rng
        files = {
            f"m-0000{n}-of-00002.gguf": b"GGUF" + rng.randbytes(PART_BYTES)
            for n in (1, 2)
        }
        files["mmproj.gguf"] = b"GGUF" + rng.randbytes(PART_BYTES // 10)
        self._old = self._new
        self._hub.files.clear()
        self._hub.add_repository(REPOSITORY, files, commit=f"{rng.randrange(2**60):x}")
        self._sizes = {
            hashlib.sha256(data).hexdigest(): len(data) for data in files.values()
        }
        self._new = {*self._sizes}

    def _n_missing(self) -> int:
        """Count the bytes that the next pull has to bring."""
        with self._store().directory as directory:
            sizes = {
                name: directory.status(part, name).st_size
                for part in (BLOBS, PARTIAL)
                for name in directory.names(part)
            }
        return sum(
            n_bytes - sizes.get(sha256, sizes.get(f"pull-{sha256}", 0))
            for sha256, n_bytes in self._sizes.items()
        )

    def interrupt(self, number: int) -> None:
        """End a pull after a random byte of what it lacks, and look at the store."""
        n_missing = self._n_missing()
        if n_missing == 0:  # all has come, and then its pull was ended
            self.complete()
            n_missing = self._n_missing()
        n_left = self._rng.randrange(n_missing)
        name, end = self._ends[number % len(self._ends)]
        with self._started() as process:

            def meter(n_bytes: int) -> int:
                nonlocal n_left
                n_sent = min(n_left, n_bytes)
                n_left -= n_sent
                if n_sent < n_bytes:
                    end(process.pid)
                return n_sent

            self._hub.meter = meter
            code = _wait(process)
        self._hub.meter = None
        self._count("ran_to_the_end" if code == 0 else name)
        self._check(f"{name} ({number})", is_new=code == 0)

    def complete(self) -> None:
        """Let a pull run to its end, and have the hub change."""
        self._hub.asked.clear()
        with self._started() as process:
            code = _wait(process)
        self._context.require(code == 0, f"a pull ended with {code}")
        resumed = sum("Range" in asked.headers for asked in self._hub.asked)
        self._count("files_resumed", resumed)
        self._check("complete", is_new=True)
        with self._store().directory as directory:
            ModelStore(directory).prune()
            left = len(directory.names(BLOBS)), directory.names(PARTIAL)
            self._context.require(left == (3, []), f"after prune the store has {left}")
        self._publish()

    def _started(self) -> "subprocess.Popen[bytes]":
        command = ["model", "pull", f"hf:{REPOSITORY}", "--name", MODEL]
        return subprocess.Popen(
            [sys.executable, "-m", "inferd", *command],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _check(self, when: str, *, is_new: bool) -> None:
        """See that the store is whole, and its model one of the two."""
        gone = eventually(lambda: not _downloaders(self._hub.endpoint))
        self._context.require(gone, f"{when}: a downloader runs on")
        store = self._store()
        with store.directory:
            try:
                assert_whole(store)
                has = {file.sha256 for file in _model(store).files}
            except ModelNotInStoreError:
                has = set()
            except AssertionError as error:
                self._context.problems.append(f"{when}: not whole: {error}")
                return
        allowed = [self._new] if is_new else [self._old, self._new]
        self._context.require(has in allowed, f"{when}: the model is another")
        self._count("whole")

    def _store(self) -> ModelStore:
        directory = StoreDirectory.open(self._path, makes=True)
        assert directory is not None  # noqa: S101  # it is made
        return ModelStore(directory)

    def _count(self, name: str, n: int = 1) -> None:
        with _LOCK:
            self._context.counts[name] = self._context.counts.get(name, 0) + n


def _model(store: ModelStore) -> Manifest:
    return store.model(MODEL)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(COMMAND_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_children(pid: int) -> None:
    with suppress(OSError):
        for child in children_of(pid):
            _signal(child, signal.SIGKILL)


def _downloaders(endpoint: str) -> list[int]:
    """List the downloaders that run for a hub."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_one = b"inferd.downloader" in (path / "cmdline").read_bytes()
            if is_one and endpoint.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found
