"""Pulls of models that end at any byte: the command, its downloader, the disk or the hub."""

import hashlib
import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import Final, NamedTuple

from inferd.models.store.directory import BLOBS, PARTIAL, StoreDirectory
from inferd.models.store.store import ModelNotInStoreError, ModelStore
from proofs.ends import Disk, End, Scene, ends
from tests.fakes.hub import Hub, running_hub
from tests.unit.models.store.stores import assert_whole
from torture.outcome import Context

KEY: Final = "pulls"
NAME: Final = "Pulls of models that end at any byte"

REPOSITORY: Final = "me/model-GGUF"
MODEL: Final = "torn"
PART_BYTES: Final = 150_000
"""Of each of the two parts of a model; the projector has a tenth."""
COMPLETED_ONE_IN: Final = 4
"""Pulls after which another one runs to its end, and the hub gets another model."""
RIVALS_ONE_IN: Final = 3
"""Pulls to the end beside which a second one wants the same model in the same store."""
PROGRAM_ONE_IN: Final = 10
"""Commands that are started as programs; the others are forked (``proofs.starter``)."""
LANES: Final = 4
"""Stores, each with a hub of its own, among which the pulls are shared out: so many pulls
run at once."""
DISK_BYTES: Final = 72 * 1024 * 1024
"""Of the file system of a store: some more than a pull wants to be free."""
COMMAND_S: Final = 300.0
"""Seconds after which a command, or a process of its own, counts as hung."""
_LOCK: Final = Lock()


def run(context: Context) -> None:
    """End pulls; the store is whole each time, with the old model or the new one."""
    n_pulls = context.pick(short=32, full=1000) // LANES
    context.figures["load_average"] = round(os.getloadavg()[0], 1)
    seeds = [context.rng.randrange(2**32) for _ in range(LANES)]
    stopped = Event()
    with ThreadPoolExecutor(LANES) as pool:
        done = [
            pool.submit(_interrupt, context, seed, n_pulls, stopped) for seed in seeds
        ]
        try:
            for each in done:
                each.result()
        finally:  # of ^C, say
            stopped.set()
    context.counts["failures"] = len(context.problems)


def _interrupt(context: Context, seed: int, n_pulls: int, stopped: Event) -> None:
    rng = random.Random(seed)
    with running_hub() as hub, _disk(context) as disk, ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="stderr-")))
        store = disk.directory / "models"
        starters = [
            stack.enter_context(_starter(hub, store, scratch / name)) for name in "ab"
        ]
        pulls = _Pulls(context, rng, Scene(hub, rng, disk), starters)
        ways = islice(ends(on_small_disk=disk.is_small), n_pulls)
        for number, end in enumerate(ways):
            if stopped.is_set():
                return
            pulls.interrupt(end, number)
            if rng.randrange(COMPLETED_ONE_IN) == 0:
                pulls.complete()
        pulls.complete()


@contextmanager
def _disk(context: Context) -> Iterator[Disk]:
    """Make a directory for a store, on a small file system where this user may mount one."""
    with TemporaryDirectory(prefix="pulls-") as place:
        path = Path(place)
        options = f"size={DISK_BYTES},mode=700"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "inferd-proof", path],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            note = "full disks: skipped, needs root that may mount a tmpfs"
            context.notes += [note] * (note not in context.notes)
            yield Disk(path, is_small=False)
            return
        try:
            yield Disk(path, is_small=True)
        finally:
            subprocess.run(["umount", path], check=True)


class _Started(NamedTuple):
    """A command that runs."""

    pid: int
    starter: "_Starter"

    def wait(self) -> int:
        """Wait until it and all its processes have ended; return its exit code."""
        return self.starter.read()


class _Starter:
    """A process that starts one pull after another.

    Args:
        process: with pipes.
        errors: what the last pull has written to stderr.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Path) -> None:
        self._process = process
        self.errors = errors

    def start(self, how: str) -> _Started:
        """Start a pull: ``program`` or ``fork``."""
        assert self._process.stdin is not None  # noqa: S101  # a pipe
        self._process.stdin.write(f"{how}\n".encode())
        return _Started(self.read(), self)

    def read(self) -> int:
        """Read a number.

        Raises:
            TimeoutError: what was started goes on and on.
        """
        assert self._process.stdout is not None  # noqa: S101  # a pipe
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._process.stdout], [], [], COMMAND_S)[0]:
                raise TimeoutError(f"a pull takes over {COMMAND_S:g} s")
            block = os.read(self._process.stdout.fileno(), 16)
            if not block:
                raise EOFError("the starter of pulls has ended")
            line += block
        return int(line)


@contextmanager
def _starter(hub: Hub, store: Path, errors: Path) -> Iterator[_Starter]:
    command = ["-m", "proofs.starter", f"hf:{REPOSITORY}", MODEL, str(errors)]
    environ = os.environ | {
        "INFERD_MODELS": str(store),
        "HF_ENDPOINT": hub.endpoint,
        "SSL_CERT_FILE": str(hub.ca_file),
    }
    with subprocess.Popen(
        [sys.executable, *command],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            yield _Starter(process, errors)
        finally:
            assert process.stdin is not None  # noqa: S101  # a pipe
            process.stdin.close()
            try:
                process.wait(COMMAND_S)
            except subprocess.TimeoutExpired:
                process.kill()


class _Pulls:
    """Pulls of one model, whose repository changes when a pull was complete."""

    def __init__(
        self,
        context: Context,
        rng: random.Random,
        scene: Scene,
        starters: list[_Starter],
    ) -> None:
        self._context = context
        self._rng = rng
        self._scene = scene
        self._hub = scene.hub
        self._starters = starters
        self._path = scene.disk.directory / "models"
        self._old: set[str] = set()
        self._new: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._publish()

    def _publish(self) -> None:
        """Have another model in the repository."""
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

    def interrupt(self, end: End, number: int) -> None:
        """End a pull after a random byte of what it lacks, and look at the store."""
        n_missing = self._n_missing()
        if n_missing == 0:  # all has come, and then its pull was ended
            self.complete()
            n_missing = self._n_missing()
        with self._scene.ending(end, self._rng.randrange(n_missing)):
            process = self._start()
            self._scene.pid.set_result(process.pid)
            code = process.wait()
        self._count("ran_to_the_end" if code == 0 else end.name)
        self._check(f"{end.name} ({number})", is_new=code == 0)

    def complete(self) -> None:
        """Let a pull run to its end, and have the hub change."""
        self._hub.asked.clear()
        with_rival = self._rng.randrange(RIVALS_ONE_IN) == 0
        started = [self._start(place) for place in range(1 + with_rival)]
        codes = {process.wait() for process in started}
        told = [each.starter.errors.read_text().strip() for each in started]
        self._count("rivals", int(with_rival))
        allowed = ({0}, {0, 2}) if with_rival else ({0},)
        self._context.require(codes in allowed, f"pulls ended with {codes}: {told}")
        resumed = sum("Range" in asked.headers for asked in self._hub.asked)
        self._count("files_resumed", resumed)
        self._check("complete", is_new=True)
        with self._store().directory as directory:
            ModelStore(directory).prune()
            left = len(directory.names(BLOBS)), directory.names(PARTIAL)
            self._context.require(left == (3, []), f"after prune the store has {left}")
        self._count("complete")
        self._publish()

    def _start(self, place: int = 0) -> _Started:
        is_program = self._rng.randrange(PROGRAM_ONE_IN) == 0
        how = "program" if is_program else "fork"
        self._count(f"started_as_{how}")
        return self._starters[place].start(how)

    def _check(self, when: str, *, is_new: bool) -> None:
        """See that the store is whole, and its model one of the two."""
        store = self._store()
        with store.directory:
            try:
                assert_whole(store)
                manifest = store.model(MODEL)
                damages = store.verify(manifest, lambda _: None)
                has = {file.sha256 for file in manifest.files}
            except ModelNotInStoreError:
                damages, has = [], set()
            except AssertionError as error:
                self._context.problems.append(f"{when}: not whole: {error}")
                return
        self._context.require(not damages, f"{when}: {damages}")
        others = self._scene.disk.others()
        self._context.require(not others, f"{when}: beside the store is {others}")
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
