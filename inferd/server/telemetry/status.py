"""The daemon's status, published to admin clients without waiting for any of them.

A subscriber has a queue of ``ADMIN_LISTENER_EVENTS`` events. One that falls further
behind is disconnected; it may reconnect and get the present status.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import structlog
import trio
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from inferd import __version__
from inferd.admission.budget import BudgetLimits
from inferd.backend.capabilities import AcceleratorKind, BackendCapabilities
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.ipc.worker import Loading, SandboxReport
from inferd.limits.connections import ADMIN_LISTENER_EVENTS
from inferd.memory.plan import MemoryPlan, mib
from inferd.wire.codec import encode
from inferd.wire.status import (
    BudgetLeft,
    CapabilitiesFrame,
    LifecycleFrame,
    StatusFrame,
)

log = structlog.get_logger("daemon")

WIRE_VERSION = 1


class BackendFacts(NamedTuple):
    """What the daemon knows of a backend besides its capabilities."""

    aliases: Sequence[str]
    state: str
    budget: BudgetLimits | None = None
    """What is left of its budget, if it has one."""


class StatusSubscriber:
    """Queue of frames for one admin client; closed when the client falls behind.

    Args:
        max_frames: most frames that are queued.
    """

    def __init__(self, max_frames: int) -> None:
        self._send, self.frames = trio.open_memory_channel[bytes](max_frames)
        self._taken = trio.lowlevel.ParkingLot()

    def send(self, line: bytes) -> None:
        """Queue a line, or close the queue if it is full."""
        try:
            self._send.send_nowait(line)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._send.close()

    def close(self) -> None:
        """Queue nothing more."""
        self._send.close()

    def mark_taken(self) -> None:
        """Note that a line was taken from the queue, for ``wait_drained``."""
        self._taken.unpark_all()

    async def wait_drained(self) -> None:
        """Wait until all queued lines were taken."""
        while self._send.statistics().current_buffer_used:
            await self._taken.park()


class StatusBoard:
    """Publisher of the daemon's status; also the ``WorkerObserver`` of its engines.

    Args:
        on_publish: called with every published frame, and with repeated ones.
        on_death: called with the backend of every worker that dies.
    """

    def __init__(
        self,
        on_publish: Callable[[StatusFrame], None] = lambda _: None,
        on_death: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.model_choices: dict[str, str] = {}
        """Which model of its ladder each backend has, and why."""
        self._on_publish = on_publish
        self._on_death = on_death
        self.facts_of: Callable[[str], BackendFacts | None] = lambda _: None
        """Looks up a backend by its name; ``None`` for one that is not known."""
        self.unread: Callable[[], Sequence[str]] = tuple
        """Lists the models of the store whose headers have not been read."""
        self._lifecycle = LifecycleFrame(status="starting")
        self._capabilities: dict[str, CapabilitiesFrame] = {}
        self._down: set[str] = set()
        self._sandbox_reports: dict[str, SandboxReport] = {}
        self._subscribers: set[StatusSubscriber] = set()
        self._has_been_ready = False
        self._is_draining = False
        self._is_closed = False

    @property
    def status(self) -> str:
        """The present lifecycle status of the daemon."""
        return self._lifecycle.status

    @property
    def snapshot(self) -> list[bytes]:
        """The present status as frames: capabilities by backend name, then lifecycle.

        Models of the store whose headers have not been read are between them.
        """
        known = [self._capabilities[name] for name in sorted(self._capabilities)]
        known = [self._with_facts(frame) for frame in known]
        known += map(_unread_frame, self.unread())
        frames: list[StatusFrame] = [*known, self._lifecycle]
        return [encode(frame) for frame in frames]

    @contextmanager
    def subscribe(self) -> Iterator["StatusSubscriber"]:
        """Get the snapshot and then every event; the frames end if we fall behind."""
        snapshot = self.snapshot
        subscriber = StatusSubscriber(ADMIN_LISTENER_EVENTS + len(snapshot))
        for frame in snapshot:
            subscriber.send(frame)
        if self._is_closed:
            subscriber.close()
        self._subscribers.add(subscriber)
        try:
            with subscriber.frames:
                yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    def publish(self, frame: StatusFrame) -> None:
        """Make a frame the present status, and send it to every subscriber."""
        if self._is_draining:
            return
        match frame:
            case CapabilitiesFrame():
                self._capabilities[frame.backend] = frame
            case LifecycleFrame():
                self._lifecycle = frame
        self._on_publish(frame)
        line = encode(frame)
        for subscriber in self._subscribers:
            subscriber.send(line)

    def all_ready(self) -> None:
        """Note that the sockets are open and every backend serves."""
        self._has_been_ready = True
        self._log_sandbox_reports()
        if not self._down:
            self.publish(LifecycleFrame(status="ready"))

    def draining(self) -> None:
        """Publish that the daemon drains, and nothing after that."""
        self.publish(LifecycleFrame(status="draining"))
        self._is_draining = True

    def close(self) -> None:
        """Close all subscribers, present and later, once their queued frames are taken."""
        self._is_closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    # --- WorkerObserver -----------------------------------------------------------

    def loading(self, backend: str, loading: Loading) -> None:
        """Publish that a worker loads its model.

        Of a backend that is added while the others serve, nothing is published.
        """
        if self._has_been_ready and backend not in self._down:
            return
        frame = LifecycleFrame(
            status="restarting" if self._has_been_ready else "loading_model",
            phase=loading.phase,
            backend=backend,
            path=loading.path or UNSET,
            n_ctx=loading.n_ctx or UNSET,
        )
        if frame == self._lifecycle:
            self._on_publish(frame)  # a keep-alive, for systemd only
        else:
            self.publish(frame)

    def planned(self, plan: MemoryPlan) -> None:
        """Log how much memory every backend gets."""
        log_event = log.warning if plan.has_shrunk else log.info
        log_event(
            "memory.planned",
            budget=mib(plan.budget),
            needed=mib(plan.total),
            n_slots=plan.n_slots,
            shrunk=plan.has_shrunk,
            backends={name: str(need) for name, need in plan.needs.items()},
        )

    def sandboxed(self, backend: str, report: SandboxReport) -> None:
        """Log that a worker is sandboxed; during startup, once all backends serve.

        A start that fails thus logs one line only.
        """
        self._sandbox_reports[backend] = report
        if self._has_been_ready:
            self._log_sandbox_reports()

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """Publish that a worker serves, and that the daemon is ready once all do."""
        if self._has_been_ready:
            log.info("worker.ready", backend=backend)
        frame = _capabilities_frame(backend, capabilities)
        self.publish(self._with_facts(frame))
        self._not_down(backend)

    def unloaded(self, backend: str) -> None:
        """Publish that a model is not loaded, which is no fault of the daemon."""
        if (known := self._capabilities.get(backend)) is not None:
            self.publish(self._with_facts(known))
        self._not_down(backend)

    def removed(self, backend: str) -> None:
        """Forget a backend; clients that connect from now on are not told of it."""
        self._capabilities.pop(backend, None)
        self.model_choices.pop(backend, None)
        self._not_down(backend)

    def _not_down(self, backend: str) -> None:
        self._down.discard(backend)
        is_known = self._lifecycle.status == "ready"
        if self._has_been_ready and not self._down and not is_known:
            self.publish(LifecycleFrame(status="ready"))

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        """Publish that a worker has exited."""
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

    def remote_changed(self, backend: str, unavailable: str) -> None:
        """Publish that a remote engine is asked nothing for a while, or is asked again."""
        if unavailable:
            log.warning("remote.suspended", backend=backend, reason=unavailable)
        else:
            log.info("remote.resumed", backend=backend)
        if (known := self._capabilities.get(backend)) is not None:
            self.publish(self._with_facts(known))

    def file_changed(self, backend: str, reason: str) -> None:
        """Log that a file changed during a load, which begins again."""
        log.warning("worker.load_repeated", backend=backend, reason=reason)

    def fell_back(self, backend: str, reason: str, *, crashed: str, lower: str) -> None:
        """Log that a worker crashed while loading; the next one uses another CPU variant."""
        log.warning(
            "worker.stepped_down",
            backend=backend,
            reason=reason,
            crashed=crashed,
            lower=lower,
        )
        self._on_death(backend)

    def _with_facts(self, frame: CapabilitiesFrame) -> CapabilitiesFrame:
        choice = self.model_choices.get(frame.backend)
        frame = replace(frame, model_choice=choice or UNSET)
        facts = self.facts_of(frame.backend)
        if facts is None:
            return frame
        return replace(
            frame,
            aliases=[*facts.aliases],
            state=facts.state,
            budget=budget_left(facts.budget),
        )

    def _log_sandbox_reports(self) -> None:
        for backend, report in self._sandbox_reports.items():
            log_event = log.info if report.is_complete else log.warning
            log_event("worker.boxed", backend=backend, **report.log_fields())
        self._sandbox_reports.clear()


def budget_left(left: BudgetLimits | None) -> BudgetLeft | UnsetType:
    """Write what is left of a budget for the protocol."""
    if left is None:
        return UNSET
    requests, tokens = left
    return BudgetLeft(
        requests_left=UNSET if requests is None else requests,
        tokens_left=UNSET if tokens is None else tokens,
    )


def _unread_frame(name: str) -> CapabilitiesFrame:
    """Make the frame of a model whose header has not been read."""
    return CapabilitiesFrame(
        backend=name,
        v2=False,
        vision=False,
        audio=False,
        tools=False,
        thinking=False,
        embed=False,
        generate=False,
        rerank=False,
        accelerator=AcceleratorKind.CPU,
        gpu_layers=0,
        wire_version=WIRE_VERSION,
        state="unloaded",
        is_unread=True,
        daemon_version=__version__,
    )


def _capabilities_frame(
    name: str, capabilities: BackendCapabilities
) -> CapabilitiesFrame:
    return CapabilitiesFrame(
        backend=name,
        v2=capabilities.v2,
        vision=capabilities.vision,
        audio=capabilities.audio,
        tools=capabilities.tools,
        thinking=capabilities.thinking,
        embed=capabilities.embed,
        generate=capabilities.generate,
        rerank=capabilities.rerank,
        accelerator=capabilities.accelerator.kind,
        gpu_layers=capabilities.accelerator.gpu_layers,
        device_name=capabilities.accelerator.device_name or UNSET,
        vram_total_bytes=capabilities.accelerator.vram_total_bytes or UNSET,
        vram_free_bytes=UNSET
        if not capabilities.accelerator.vram_total_bytes
        else capabilities.accelerator.vram_free_bytes,
        cpu_variant=capabilities.cpu_variant or UNSET,
        wire_version=WIRE_VERSION,
        n_ctx=capabilities.n_ctx or UNSET,
        n_slots=capabilities.n_slots or UNSET,
        cache_type_k=capabilities.cache_type_k or UNSET,
        cache_type_v=capabilities.cache_type_v or UNSET,
        model=capabilities.model or UNSET,
        remote=capabilities.remote or UNSET,
        by_name_only=capabilities.by_name_only or UNSET,
        structure=capabilities.structure,
        transcribe=capabilities.transcribe or UNSET,
        audio_sample_rate=capabilities.audio_sample_rate or UNSET,
        dialect=capabilities.dialect or UNSET,
        daemon_version=__version__,
    )
