"""The answer to ``top``: the daemon as a whole, all of one moment."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio
from msgspec import UNSET, UnsetType

from inferd import __version__
from inferd.backend.caller import Caller
from inferd.backend.interface import Backend
from inferd.errors import ErrorCode
from inferd.limits.server import MAX_LISTED_LOADS, OVERVIEW_WINDOW_S
from inferd.memory.available import available_bytes
from inferd.memory.resident import resident_bytes
from inferd.server.history.record import Life, life_of
from inferd.server.history.time_span import TimeSpan, busy_s, percentiles, tokens_in
from inferd.server.inflight import InFlight
from inferd.server.queue.requests import RequestQueue
from inferd.server.telemetry.metrics import Metrics
from inferd.wire.observed import ModelLoad, Overview, UserLoad

_CODES: Final = frozenset(code.value for code in ErrorCode)


@dataclass
class _Load:
    """What the requests of a user, or of a backend, come to."""

    running: int = 0
    waiting: int = 0
    busy_s: float = 0.0
    ended: int = 0
    tokens: float = 0.0


@dataclass
class _Sums:
    """Loads by user and by backend."""

    users: dict[Caller, _Load] = field(default_factory=dict)
    models: dict[str | None, _Load] = field(default_factory=dict)

    def of(self, caller: Caller, backend: str | None) -> tuple[_Load, _Load]:
        """Return the loads that a request counts towards."""
        return (
            self.users.setdefault(caller, _Load()),
            self.models.setdefault(backend, _Load()),
        )


@dataclass(frozen=True)
class Overviews:
    """Looks at all parts of the daemon at once.

    Cost: what has ended within ``OVERVIEW_WINDOW_S`` and what is present is looked at
    once: some 4 ms for a thousand requests, 40 ms for ten thousand.
    """

    in_flight: InFlight
    queue: RequestQueue
    backends: Sequence[Backend]
    metrics: Metrics
    status: Callable[[], str]
    """The lifecycle status of the daemon."""
    began_at: float = field(default_factory=time.monotonic)

    def look(self) -> Overview:
        """Describe the daemon, as of now."""
        now = trio.current_time()
        ended = self.in_flight.ended
        uptime_s = time.monotonic() - self.began_at
        began = now - min(OVERVIEW_WINDOW_S, uptime_s)
        window = TimeSpan(max(began, ended.complete_since), now)
        lately = [*_ended_within(ended, window)]
        running = [
            life_of(each, has_ended=False)
            for each in self.in_flight
            if each.started_at is not None
        ]  # those that only wait for their clients to read among them
        sums = self._sums(lately, running, window)
        users = [*_users(sums, window)]
        models = [*self._models(sums, window)]
        answered = [each for each in lately if each.outcome not in _CODES]
        seconds = window.seconds or 1.0
        return Overview(
            version=__version__,
            status=self.status(),
            at_ns=time.time_ns(),
            uptime_s=round(uptime_s, 3),
            pid=os.getpid(),
            resident_bytes=_known(resident_bytes(os.getpid())),
            running=self.queue.count_active(),
            places=self.queue.max_active,
            waiting=self.queue.count_waiting(),
            paused=self.queue.count_paused(),
            waiting_tokens=self.queue.count_waiting_tokens(),
            connections=self.metrics.read("connections"),
            window_s=round(window.seconds, 3),
            ended=len(lately),
            failed=len(lately) - len(answered),
            input_tokens=sum(each.input_tokens for each in lately),
            cached_tokens=sum(each.reuse.cached_tokens for each in lately),
            tokens_per_second=round(
                sum(each.tokens for each in sums.users.values()) / seconds, 3
            ),
            first_token_ms=percentiles(
                each.first_at - each.arrived_at
                for each in lately
                if each.first_at is not None
            ),
            waiting_ms=percentiles(
                each.started_at - each.arrived_at
                for each in lately
                if each.started_at is not None
            ),
            total_ms=percentiles(each.now - each.arrived_at for each in answered),
            memory_budget_bytes=self.metrics.read("memory_budget_bytes"),
            memory_needed_bytes=self.metrics.read("memory_needed_bytes"),
            memory_available_bytes=available_bytes(),
            users=users[:MAX_LISTED_LOADS],
            omitted_users=max(0, len(users) - MAX_LISTED_LOADS) or UNSET,
            models=models[:MAX_LISTED_LOADS],
            omitted_models=max(0, len(models) - MAX_LISTED_LOADS) or UNSET,
        )

    def _sums(
        self, lately: Sequence[Life], running: Sequence[Life], window: TimeSpan
    ) -> _Sums:
        sums = _Sums()
        for life in (*lately, *running):
            for load in sums.of(life.caller, life.backend):
                load.busy_s += busy_s(life, window)
                load.tokens += tokens_in(life, window)
                load.ended += life.outcome is not None
                load.running += life.outcome is None and life.steps.left_at is None
        waiting = Counter(
            (each.caller, each.backend)
            for each in self.in_flight
            if each.started_at is None
        )
        for (caller, backend), n_waiting in waiting.items():
            for load in sums.of(caller, backend):
                load.waiting += n_waiting
        return sums

    def _models(self, sums: _Sums, window: TimeSpan) -> Iterator[ModelLoad]:
        for backend in self.backends:
            load = sums.models.get(backend.name, _Load())
            pid, capabilities = backend.worker_pid, backend.capabilities
            yield ModelLoad(
                name=backend.name,
                state=backend.state,
                pid=_known(pid),
                resident_bytes=_known(None if pid is None else resident_bytes(pid)),
                cache_bytes=_known(self.metrics.saved_prompt_bytes(backend.name)),
                slots=capabilities.n_slots or UNSET,
                running=load.running,
                waiting=load.waiting,
                n_ctx=capabilities.n_ctx or UNSET,
                remote=capabilities.remote or UNSET,
                tokens_per_second=round(load.tokens / (window.seconds or 1.0), 3),
            )


def _ended_within(ended: Iterable[Life], window: TimeSpan) -> Iterator[Life]:
    for life in ended:
        if life.now < window.began:
            return
        yield life


def _users(sums: _Sums, window: TimeSpan) -> Iterator[UserLoad]:
    """Yield the loads of users, the largest first."""
    all_s = sum(load.busy_s for load in sums.users.values()) or 1.0
    for caller, load in sorted(
        sums.users.items(), key=lambda item: (-item[1].busy_s, -item[1].waiting)
    ):
        yield UserLoad(
            uid=caller.user,
            principal=caller.principal or UNSET,
            running=load.running,
            waiting=load.waiting,
            share=round(load.busy_s / all_s, 4),
            ended=load.ended,
            tokens_per_second=round(load.tokens / (window.seconds or 1.0), 3),
        )


def _known(number: int | None) -> int | UnsetType:
    return UNSET if number is None else number
