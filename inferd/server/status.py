"""The latest status to every listener, and none of them ever in the way.

A listener has room for ``ADMIN_LISTENER_EVENTS`` events. One that falls further behind
is cut off: it reconnects and gets the present state.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import structlog
import trio
from msgspec import UNSET

from inferd import __version__
from inferd.capabilities import BackendCapabilities
from inferd.engine.restart import Pause
from inferd.fit import Plan, mib
from inferd.ipc import Boxed, Loading
from inferd.limits import ADMIN_LISTENER_EVENTS
from inferd.wire.codec import encode
from inferd.wire.status import CapabilitiesFrame, LifecycleFrame, StatusFrame

log = structlog.get_logger("daemon")

WIRE_VERSION = 1


class Listener:
    """One who is told; cut off when it falls behind.

    Args:
        room: frames that may wait for it.
    """

    def __init__(self, room: int) -> None:
        self._send, self.frames = trio.open_memory_channel[bytes](room)
        self._taken = trio.lowlevel.ParkingLot()

    def tell(self, line: bytes) -> None:
        """Have it told a line, or cut it off."""
        try:
            self._send.send_nowait(line)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._send.close()

    def end(self) -> None:
        """Tell it nothing more."""
        self._send.close()

    def took(self) -> None:
        """Note that it has taken a line, for who waits until it has caught up."""
        self._taken.unpark_all()

    async def caught_up(self) -> None:
        """Wait until it has taken all that it was told."""
        while self._send.statistics().current_buffer_used:
            await self._taken.park()


class StatusBoard:
    """What the daemon is doing; also the ``Observer`` of its engines.

    Args:
        on_publish: told every frame that listeners are told, and repeated ones.
        on_death: told the backend of every worker that dies.
    """

    def __init__(
        self,
        on_publish: Callable[[StatusFrame], None] = lambda _: None,
        on_death: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_publish = on_publish
        self._on_death = on_death
        self._lifecycle = LifecycleFrame(status="starting")
        self._capabilities: dict[str, CapabilitiesFrame] = {}
        self._down: set[str] = set()
        self._boxes: dict[str, Boxed] = {}
        self._listeners: set[Listener] = set()
        self._has_been_ready = False
        self._is_draining = False
        self._is_closed = False

    @property
    def snapshot(self) -> list[bytes]:
        """Frames that tell a new listener all: capabilities by name, then lifecycle."""
        known = [self._capabilities[name] for name in sorted(self._capabilities)]
        frames: list[StatusFrame] = [*known, self._lifecycle]
        return [encode(frame) for frame in frames]

    @contextmanager
    def listen(self) -> Iterator["Listener"]:
        """Hear the snapshot and then every event; the frames end when we lag."""
        listener = Listener(ADMIN_LISTENER_EVENTS + len(self._capabilities) + 1)
        for frame in self.snapshot:
            listener.tell(frame)
        if self._is_closed:
            listener.end()
        self._listeners.add(listener)
        try:
            with listener.frames:
                yield listener
        finally:
            self._listeners.discard(listener)

    def publish(self, frame: StatusFrame) -> None:
        """Make a frame the present state and tell every listener."""
        if self._is_draining:
            return
        match frame:
            case CapabilitiesFrame():
                self._capabilities[frame.backend] = frame
            case LifecycleFrame():
                self._lifecycle = frame
        self._on_publish(frame)
        line = encode(frame)
        for listener in self._listeners:
            listener.tell(line)

    def all_ready(self) -> None:
        """The sockets are there and every backend serves."""
        self._has_been_ready = True
        self._tell_boxes()
        if not self._down:
            self.publish(LifecycleFrame(status="ready"))

    def draining(self) -> None:
        """No new requests from here on; nothing is said after this."""
        self.publish(LifecycleFrame(status="draining"))
        self._is_draining = True

    def close(self) -> None:
        """Let every listener go once it has read what it was told, who comes later too."""
        self._is_closed = True
        for listener in self._listeners:
            listener.end()

    # --- Observer -----------------------------------------------------------------

    def loading(self, backend: str, loading: Loading) -> None:
        """A worker is on its way to ready."""
        frame = LifecycleFrame(
            status="restarting" if self._has_been_ready else "loading_model",
            phase=loading.phase,
            backend=backend,
            path=loading.path or UNSET,
            n_ctx=loading.n_ctx or UNSET,
        )
        if frame == self._lifecycle:
            self._on_publish(frame)  # a sign of life: news for systemd alone
        else:
            self.publish(frame)

    def planned(self, plan: Plan) -> None:
        """What memory every backend gets is decided."""
        say = log.warning if plan.has_shrunk else log.info
        say(
            "memory.planned",
            budget=mib(plan.budget),
            needed=mib(plan.total),
            n_slots=plan.n_slots,
            shrunk=plan.has_shrunk,
            backends={name: str(need) for name, need in plan.needs.items()},
        )

    def boxed(self, backend: str, boxed: Boxed) -> None:
        """A worker has given up what it has no use for; told once all serve.

        A start that fails is to be one line.
        """
        self._boxes[backend] = boxed
        if self._has_been_ready:
            self._tell_boxes()

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """A worker serves; the daemon is ready again when all do."""
        if self._has_been_ready:
            log.info("worker.ready", backend=backend)
        self.publish(_capabilities_frame(backend, capabilities))
        self._down.discard(backend)
        if self._has_been_ready and not self._down:
            self.publish(LifecycleFrame(status="ready"))

    def died(self, backend: str, reason: str, pause: Pause) -> None:
        """A worker is gone."""
        log.warning(
            "worker.exited", backend=backend, reason=reason, pause_s=pause.seconds
        )
        self._on_death(backend)
        self._down.add(backend)
        self.publish(
            LifecycleFrame(
                status="restarting",
                phase="breaker_open" if pause.breaker_is_open else "backoff",
                backend=backend,
                reason=reason,
                retry_in_s=pause.seconds,
            )
        )

    def stepped_down(
        self, backend: str, reason: str, *, crashed: str, lower: str
    ) -> None:
        """A worker crashed as it loaded, and the next one runs other code."""
        log.warning(
            "worker.stepped_down",
            backend=backend,
            reason=reason,
            crashed=crashed,
            lower=lower,
        )
        self._on_death(backend)

    def _tell_boxes(self) -> None:
        for backend, boxed in self._boxes.items():
            say = log.info if boxed.is_whole else log.warning
            say("worker.boxed", backend=backend, **msgspec.structs.asdict(boxed))
        self._boxes.clear()


def _capabilities_frame(name: str, able: BackendCapabilities) -> CapabilitiesFrame:
    return CapabilitiesFrame(
        backend=name,
        v2=able.v2,
        vision=able.vision,
        audio=able.audio,
        tools=able.tools,
        thinking=able.thinking,
        embed=able.embed,
        generate=able.generate,
        rerank=able.rerank,
        accelerator=able.accelerator.kind,
        gpu_layers=able.accelerator.gpu_layers,
        cpu_variant=able.cpu_variant or UNSET,
        wire_version=WIRE_VERSION,
        n_ctx=able.n_ctx or UNSET,
        n_slots=able.n_slots or UNSET,
        cache_type_k=able.cache_type_k or UNSET,
        cache_type_v=able.cache_type_v or UNSET,
        model=able.model or UNSET,
        structure=able.structure,
        transcribe=able.transcribe or UNSET,
        audio_sample_rate=able.audio_sample_rate or UNSET,
        dialect=able.dialect or UNSET,
        daemon_version=__version__,
    )
