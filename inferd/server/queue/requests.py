"""The request queue: tasks that wait for the decisions of ``admission``."""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import trio

from inferd.admission.control import Admission, RequestTraits
from inferd.backend.gauge import GaugeSpec
from inferd.config.settings import AdmissionSettings
from inferd.errors import BackendNotReadyError, DrainingError
from inferd.server.queue.permit import Permit

__all__ = ["Permit", "RequestQueue"]


class QueueObserver(Protocol):
    """Receiver of what becomes of the requests of each backend."""

    def arrived(self, backend: str) -> None:
        """A request was admitted."""

    def started(self, backend: str) -> None:
        """A request has a permit, for the first time."""

    def left(
        self, backend: str, *, has_started: bool, user: int, keep_alive_s: float | None
    ) -> None:
        """A request has ended."""


class _NoObserver:
    def arrived(self, backend: str) -> None:
        pass

    def started(self, backend: str) -> None:
        pass

    def left(
        self, backend: str, *, has_started: bool, user: int, keep_alive_s: float | None
    ) -> None:
        pass


class RequestQueue:
    """Queue of the requests of all sockets; grants permits as ``Admission`` decides."""

    def __init__(self, admission: Admission) -> None:
        self.observer: QueueObserver = _NoObserver()
        """Told of every request."""
        self._admission = admission
        self._numbers = itertools.count()
        self._permits: dict[int, Permit] = {}
        self._next_at = math.inf
        self._timer = trio.CancelScope()

    async def run(self) -> None:
        """Preempt requests when their quantum is over, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_at) as self._timer:
                await trio.sleep_forever()
            self._preempt_due()

    @property
    def max_active(self) -> int:
        """The requests that may hold a permit at once."""
        return self._admission.max_active

    def count_active(self) -> int:
        """Count the requests that hold a permit."""
        return self._admission.active

    def count_waiting(self) -> int:
        """Count the requests that wait for a permit."""
        return self._admission.waiting

    def count_waiting_tokens(self) -> int:
        """Count the prompt tokens of waiting requests, as far as they are known."""
        return self._admission.waiting_tokens

    def count_waiting_bytes(self) -> int:
        """Count the bytes of the lines of waiting requests."""
        return self._admission.waiting_bytes

    def count_paused(self) -> int:
        """Count the requests whose permit was taken back."""
        return self._admission.n_paused

    def gauges(self) -> Iterator[GaugeSpec]:
        """Yield the name, help text and value of every gauge."""
        yield "active_requests", "Requests that run.", self.count_active
        yield "queued_requests", "Requests that wait.", self.count_waiting
        yield (
            "queued_tokens",
            "Prompt tokens of requests that wait, as far as they are counted.",
            self.count_waiting_tokens,
        )
        yield (
            "queued_bytes",
            "Bytes of the lines of requests that wait.",
            self.count_waiting_bytes,
        )
        yield (
            "paused_requests",
            "Requests that had started and wait, for other requests or for more audio.",
            self.count_paused,
        )

    @contextmanager
    def admitted(
        self,
        traits: RequestTraits,
        *,
        wants_position: bool = False,
        keep_alive_s: float | None = None,
    ) -> Iterator[Permit]:
        """Hold a place in the queue, or a permit, while inside.

        Args:
            traits: properties of the request that decide when it runs.
            wants_position: whether the client wants its position in the queue.
            keep_alive_s: seconds that its model is to stay loaded afterwards, for the
                observer.

        Raises:
            QueueFullError: the queue is full.
            DrainingError: the daemon is draining.
        """
        permit = Permit(next(self._numbers), traits.caller, traits.backend)
        permit.wants_position = wants_position
        runs = self._admission.arrive(permit.ticket, traits, now=trio.current_time())
        self.observer.arrived(permit.backend)
        if runs:
            self._grant(permit)
        else:
            permit.notes.n_waiting = self._admission.waiting - 1
            permit.notes.waits(self._admission.holders())
        self._permits[permit.ticket] = permit
        self._on_change()
        try:
            yield permit
        finally:
            del self._permits[permit.ticket]
            self._grant_next(
                self._admission.leave(permit.ticket, now=trio.current_time())
            )
            self.observer.left(
                permit.backend,
                has_started=permit.has_started,
                user=permit.caller.user,
                keep_alive_s=keep_alive_s,
            )

    def hold(self, backend: str) -> None:
        """Grant no permits to new requests for a backend."""
        self._admission.hold(backend)
        self._on_change()

    def release(self, backend: str) -> None:
        """End ``hold``."""
        for ticket in self._admission.release(backend, now=trio.current_time()):
            self._grant_next(ticket)
        self._on_change()

    def suspend(self, permit: Permit) -> None:
        """Take the permit of an idle request back, until ``resume``."""
        permit.is_idle = True
        if permit.is_granted:
            permit.pause(partial(self._on_paused, permit))

    def resume(self, permit: Permit) -> None:
        """Queue a suspended request again."""
        permit.is_idle = False
        if permit.ticket not in self._permits or not self._admission.is_idle(
            permit.ticket
        ):
            return
        permit.mark_waiting()
        if self._admission.resume(permit.ticket, now=trio.current_time()):
            self._grant(permit)
        self._on_change()

    def charge_tokens(self, permit: Permit, n_tokens: int) -> None:
        """Count the prompt tokens of a request.

        Raises:
            QueueFullError: too many tokens wait already; the request has to end.
        """
        self._admission.charge_tokens(permit.ticket, n_tokens)

    def cap_active(self, n_slots: Iterable[int]) -> None:
        """Limit running requests to the fewest slots of a backend; before any request.

        Args:
            n_slots: of each backend; 0 for one without a limit.
        """
        if limits := [each for each in n_slots if each]:
            self._admission.cap_active(min(limits))

    def reconfigure(self, settings: AdmissionSettings) -> None:
        """Change the limits of the queue."""
        self._admission.resize(
            max_queued=settings.max_queued,
            max_queued_tokens=settings.max_queued_tokens,
            max_queued_bytes=settings.max_queued_bytes,
        )
        self._admission.set_quantum(settings.quantum_s)
        self._admission.set_max_live(settings.max_live)
        self._admission.set_gateway_weight(settings.gateway_weight)

    def close(self) -> None:
        """Refuse all further requests."""
        self._admission.close()

    def reject_waiting(self) -> None:
        """Reject all waiting requests; running ones continue."""
        for permit in self._permits.values():
            permit.reject(DrainingError())

    def reject(self, backend: str, reason: str) -> None:
        """Reject the waiting requests for a backend that cannot be loaded."""
        for permit in self._permits.values():
            if permit.backend == backend and not permit.has_started:
                permit.reject(BackendNotReadyError(reason))

    def order(self) -> list[Permit]:
        """List the waiting requests, the next to run first."""
        return [self._permits[ticket] for ticket in self._admission.order()]

    def positions(self) -> dict[Permit, int]:
        """Return the position of each waiting request; 1 for the next to run."""
        return {permit: at for at, permit in enumerate(self.order(), start=1)}

    def _on_change(self) -> None:
        self._update_positions()
        self._preempt_due()

    def _grant_next(self, successor: int | None) -> None:
        """Grant a permit to the successor, or to the next one that is not idle."""
        while successor is not None and self._permits[successor].is_idle:
            successor = self._admission.note_paused(
                successor, now=trio.current_time(), waits=False
            )
        if successor is not None:
            self._grant(self._permits[successor])
        self._on_change()

    def _grant(self, permit: Permit) -> None:
        if not permit.has_started:
            permit.has_started = True
            self.observer.started(permit.backend)
        permit.grant()

    def _preempt_due(self) -> None:
        """Preempt the requests that are due, and set the timer for the next."""
        now = trio.current_time()
        while (due := self._admission.next_preemption(now=now)).ticket is not None:
            permit = self._permits[due.ticket]
            permit.pause(partial(self._on_paused, permit))
        self._next_at = self._timer.deadline = due.at

    def _on_paused(self, permit: Permit) -> None:
        if permit.ticket not in self._permits:
            return
        permit.mark_waiting()
        permit.n_pauses += not permit.is_idle
        now = trio.current_time()
        self._grant_next(
            self._admission.note_paused(
                permit.ticket, now=now, waits=not permit.is_idle
            )
        )
        if not (permit.is_granted or permit.is_idle):
            permit.notes.waits(self._admission.holders())

    def _update_positions(self) -> None:
        if any(permit.wants_position for permit in self._permits.values()):
            for permit, position in self.positions().items():
                permit.set_position(position)
