"""How a pull ends before its time: what is struck at a byte, and what hubs say that is false."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tests.fakes.hub import Behaviour, Hub
from torture.litter import children_of

FILLER: Final = "filler"
FILLER_BLOCK_BYTES: Final = 1024 * 1024
PID_S: Final = 60.0
"""Seconds in which the pid of a command is known that asks a hub for files."""


@dataclass
class Disk:
    """Where a store is."""

    directory: Path
    is_small: bool
    """Whether it is a small file system that nobody else uses."""

    def fill(self) -> None:
        """Leave no room on it."""
        with (self.directory / FILLER).open("ab", buffering=0) as file:
            for n_bytes in (FILLER_BLOCK_BYTES, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(n_bytes)) == n_bytes:
                        pass

    def clear(self) -> None:
        """Give the room back."""
        (self.directory / FILLER).unlink(missing_ok=True)

    def others(self) -> list[str]:
        """Name what is there beside the store."""
        names = {path.name for path in self.directory.iterdir()}
        return sorted(names - {"models", FILLER})


class _Meter:
    """Counts the bytes of files, in threads of a hub, and strikes after so many of them.

    Args:
        n_left: bytes.
        strike: is called once.
        drops: whether the connection ends then.
    """

    def __init__(
        self, n_left: int, strike: Callable[[], object], *, drops: bool
    ) -> None:
        self._n_left = n_left
        self._strike = strike
        self._drops = drops
        self._striking = Lock()
        self._is_over = False

    def __call__(self, n_bytes: int) -> int:
        """Tell how many of the bytes that come next are sent."""
        n_sent = min(self._n_left, n_bytes)
        self._n_left -= n_sent
        if n_sent == n_bytes:
            return n_bytes
        with self._striking:
            if not self._is_over:
                self._is_over = True
                self._strike()
        return n_sent if self._drops else n_bytes

    def stop(self) -> None:
        """Strike no more, and wait for a strike that has begun."""
        with self._striking:
            self._is_over = True


class Scene:
    """A hub, a disk, and a command between them.

    Args:
        hub: that is pulled from.
        rng: of everything that is drawn.
        disk: that the store is on.
    """

    def __init__(self, hub: Hub, rng: random.Random, disk: Disk) -> None:
        self.hub = hub
        self.rng = rng
        self.disk = disk
        self.pid: Future[int] = Future()
        """Of the command."""

    @contextmanager
    def ending(self, end: "End", n_bytes: int) -> Iterator[None]:
        """Have the pull that is started inside end after so many bytes of files."""
        self.pid = Future()
        with ExitStack() as stack:
            stack.callback(self.disk.clear)
            end.prepare(self, stack)
            drops = end.drops and not (end.is_lie and self.rng.randrange(2))
            meter = _Meter(n_bytes, lambda: end.strike(self), drops=drops)
            stack.callback(meter.stop)
            stack.callback(setattr, self.hub, "meter", None)
            self.hub.meter = meter
            yield

    def signal(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        _signal(self.pid.result(PID_S), number)

    def kill_downloader(self) -> None:
        """Kill the processes of the command."""
        with suppress(OSError):
            for child in children_of(self.pid.result(PID_S)):
                _signal(child, signal.SIGKILL)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Give the paths and contents of the hub."""
        yield from [*self.hub.files.items()]


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@dataclass(frozen=True)
class End:
    """A way for a pull to end."""

    name: str
    strike: Callable[[Scene], object] = lambda _: None
    """Is called at the byte."""
    prepare: Callable[[Scene, ExitStack], object] = lambda *_: None
    """Is called before the pull starts; the stack undoes it."""
    drops: bool = True
    """Whether the connection ends at the byte."""
    is_lie: bool = False
    needs_small_disk: bool = False


STRIKES: Final = (
    End("commands_killed", lambda scene: scene.signal(signal.SIGKILL)),
    End("commands_interrupted", lambda scene: scene.signal(signal.SIGINT)),
    End("downloaders_killed", Scene.kill_downloader),
    End("connections_dropped"),
    End(
        "disks_filled",
        lambda scene: scene.disk.fill(),
        drops=False,
        needs_small_disk=True,
    ),
)


# --- hubs that say what is false --------------------------------------------------------


def _behaves(scene: Scene, stack: ExitStack, path: str, behaviour: Behaviour) -> None:
    scene.hub.behaviours[path] = behaviour
    stack.callback(scene.hub.behaviours.pop, path)


def _serves(scene: Scene, stack: ExitStack, path: str, data: bytes) -> None:
    stack.callback(scene.hub.files.__setitem__, path, scene.hub.files[path])
    scene.hub.files[path] = data


def _with_another_byte(scene: Scene, stack: ExitStack) -> None:
    for path, data in scene.files():
        changed = bytearray(data)
        changed[scene.rng.randrange(4, len(data))] ^= 1
        _serves(scene, stack, path, bytes(changed))


def _with_another_byte_as_before(scene: Scene, stack: ExitStack) -> None:
    """Change bytes, and say that nothing has changed."""
    for path, data in scene.files():
        _behaves(scene, stack, path, Behaviour(headers={"ETag": Hub.etag_of(data)}))
    _with_another_byte(scene, stack)


def _with_fewer_bytes(scene: Scene, stack: ExitStack) -> None:
    for path, data in scene.files():
        _serves(scene, stack, path, data[: scene.rng.randrange(1, len(data))])


def _with_more_bytes(scene: Scene, stack: ExitStack) -> None:
    for path, data in scene.files():
        _serves(scene, stack, path, data + b"more")
        _behaves(scene, stack, path, Behaviour(has_length=False))


def _with_headers(**headers: str) -> Callable[[Scene, ExitStack], None]:
    def prepare(scene: Scene, stack: ExitStack) -> None:
        stated = {name.replace("_", "-"): text for name, text in headers.items()}
        for path, _ in scene.files():
            _behaves(scene, stack, path, Behaviour(headers=stated))

    return prepare


def _elsewhere(scene: Scene, stack: ExitStack) -> None:
    for path, _ in scene.files():
        where = f"http://localhost:{scene.hub.port}{path}"
        _behaves(scene, stack, path, Behaviour(redirect=where))


def _listing(change: Callable[[dict[str, Any]], object]) -> Callable[..., None]:
    """Have what the hub says of each file changed."""

    def prepare(scene: Scene, stack: ExitStack) -> None:
        for repository in scene.hub.repositories.values():
            siblings: Any = repository["siblings"]
            for sibling in siblings:
                before = {**sibling, "lfs": {**sibling["lfs"]}}
                stack.callback(sibling.update, before)
                change(sibling)

    return prepare


def _listing_cut(scene: Scene, stack: ExitStack) -> None:
    for repository in scene.hub.repositories:
        path = f"/api/models/{repository}"
        n_bytes = scene.rng.randrange(100)
        for asked in (path, f"{path}/revision/main"):
            _behaves(scene, stack, asked, Behaviour(sends=n_bytes))


LIES: Final = tuple(
    End(f"hub_{name}", prepare=prepare, is_lie=True)
    for name, prepare in (
        ("sends_another_byte", _with_another_byte),
        ("sends_another_byte_under_the_old_etag", _with_another_byte_as_before),
        ("sends_fewer_bytes", _with_fewer_bytes),
        ("sends_more_bytes", _with_more_bytes),
        ("states_another_range", _with_headers(Content_Range="bytes 7-8/9")),
        ("sends_a_web_page", _with_headers(Content_Type="text/html")),
        ("encodes_what_it_sends", _with_headers(Content_Encoding="gzip")),
        ("redirects_to_plain_http", _elsewhere),
        ("lists_other_sizes", _listing(lambda each: each["lfs"].update(size=77))),
        ("lists_other_digests", _listing(lambda each: each["lfs"].update(sha256="7" * 64))),
        (
            "lists_paths_outside",
            _listing(lambda each: each.update(rfilename=f"../../{each['rfilename']}")),
        ),
        ("cuts_its_list", _listing_cut),
    )
)  # fmt: skip


def ends(*, on_small_disk: bool) -> Iterator[End]:
    """Give all ways in turn, without end: each strike as often as all lies together."""
    lies = cycle(LIES)
    strikes = [end for end in STRIKES if on_small_disk or not end.needs_small_disk]
    while True:
        yield from strikes
        yield next(lies)
