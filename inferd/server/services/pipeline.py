"""The path of every request to a backend: queue, route, render, prepare, wait for a permit."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

import trio
from msgspec.structs import replace

from inferd.admission.control import RequestTraits
from inferd.backend.interface import Backend, J, Prepared
from inferd.backend.job import GenerateJob, Job, RenderedJob
from inferd.config.settings import LimitSettings
from inferd.errors import InferdError, InvalidRequestError, ModelNotFoundError
from inferd.ipc.worker import Loading
from inferd.limits.protocol import INSTANCE_BYTES
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.resolve.request import ResolvedRequest
from inferd.routing import ModelNames, route
from inferd.server.budgets.budgets import Budgets, no_budgets
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.model import OnLoading
from inferd.server.loading.store_models import UNREAD, StoreModels
from inferd.server.media.quota import MediaQuota
from inferd.server.queue.prepare import PrepareLocks
from inferd.server.queue.requests import Permit, RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.services.described import described_models

P = TypeVar("P", bound=Job)
OnPosition = Callable[[int], Awaitable[None]]
"""Sends the client its position in the queue."""
MakeJob = Callable[[Backend], Awaitable[tuple[J, Sequence[int]]]]
"""Makes the job for a backend, and gives the descriptors of its media files."""


@dataclass(frozen=True)
class Reports:
    """What the client of a request wants to know before it runs."""

    on_position: OnPosition | None = None
    """Called with the position in the queue, if it has to wait, and every later one."""
    on_loading: OnLoading | None = None
    """Called with each phase, if its model has to be loaded."""


NO_REPORTS: Final = Reports()


@dataclass(frozen=True)
class _Running(Generic[J]):
    """A job with a permit, which the queue can pause and resume."""

    backend: Backend
    prepared: Prepared[J]

    def pause(self, on_paused: Callable[[], object]) -> None:
        self.backend.pause(self.prepared, on_paused)

    def resume(self) -> None:
        self.backend.resume(self.prepared)

    def report_queue_position(self, position: int) -> None:
        self.backend.report_queue_position(self.prepared, position)


def _default_media_quota() -> MediaQuota:
    return MediaQuota(LimitSettings(), MAX_MEDIA_FILES, lambda: 0)


def resolved_job(plan: ResolvedRequest[J]) -> MakeJob[J]:
    """Use the job of a resolved request as it is, whatever the backend, without media."""

    async def make_job(_: Backend) -> tuple[J, Sequence[int]]:
        return plan.job, ()

    return make_job


@dataclass(frozen=True)
class Pipeline:
    """The backends, queues and quotas that the services of all sockets share."""

    backends: Sequence[Backend]
    queue: RequestQueue
    prepare_locks: PrepareLocks = field(default_factory=PrepareLocks)
    render_locks: PrepareLocks = field(default_factory=PrepareLocks)
    """For prompts that the backend renders. Plain requests need none of these locks."""
    compile_locks: PrepareLocks = field(default_factory=PrepareLocks)
    """For rendered requests whose grammar the backend compiles."""
    media_quota: MediaQuota = field(default_factory=_default_media_quota)
    names: ModelNames = field(default_factory=ModelNames)
    """The names by which requests ask for a backend."""
    loader: ModelLoader = field(default_factory=ModelLoader)
    store: StoreModels | None = None
    """The models of the store that requests may name."""
    budgets: Budgets = field(default_factory=no_budgets)
    """Of the backends that have one."""
    loop: LoopScheduler = field(default_factory=LoopScheduler)
    """Is told what a user's tokens take in tasks that are not the user's."""
    instance: str = field(default_factory=partial(secrets.token_hex, INSTANCE_BYTES))
    """The daemon's id among those that pass a request on; drawn at each start."""

    @asynccontextmanager
    async def admit(
        self,
        plan: ResolvedRequest[P],
        context: RequestContext,
        make_job: MakeJob[J],
        *,
        reports: Reports = NO_REPORTS,
    ) -> AsyncIterator[tuple[Backend, Prepared[J]]]:
        """Hold a permit while inside.

        Args:
            plan: the resolved request.
            context: of the request; updated at every step.
            make_job: called once a backend is chosen and prepares nothing else; the
                caller owns the descriptors and keeps them open while inside.
            reports: what its client wants to know before it runs.

        Raises:
            InferdError: the request cannot be served.

        Cancellation: the job is dropped and its place in the queue freed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled before it was queued
        context.model = plan.model
        backend = await self._route(plan, context)
        with (
            self.queue.admitted(
                _traits_of(plan, context, backend.key),
                wants_position=reports.on_position is not None,
                keep_alive_s=plan.keep_alive_s,
            ) as permit,
            context.queued(permit, backend.name),
        ):
            await self._wait_loaded(backend, permit, reports.on_loading)
            context.steps.loaded_at = trio.current_time()
            rendered = await self._render(backend, plan.job, permit)
            async with AsyncExitStack() as prepares:
                prepare_locks = self._locks_for(rendered)
                async with prepare_locks.acquire(backend.key, permit, self.queue.order):
                    job, fds = await make_job(backend)
                    if rendered is not None and isinstance(job, GenerateJob):
                        job = replace(job, rendered=rendered)
                    prepared = await prepares.enter_async_context(
                        backend.prepare(self._passed_on(job, plan.via, backend), fds)
                    )
                context.prepared(prepared)
                self.queue.charge_tokens(permit, prepared.input_tokens)
                if reports.on_position is not None:
                    await _report_positions(permit, reports.on_position)
                await permit.wait()
                with self.budgets.reserving(backend.name, job, context):
                    permit.set_job(_Running(backend, prepared))
                    context.started()
                    yield backend, prepared

    def _passed_on(self, job: J, via: Sequence[str], backend: Backend) -> J:
        """Tell a remote engine who has passed the request on, this daemon last."""
        if not backend.capabilities.remote:
            return job
        return replace(job, via=(*via, self.instance))

    def _refuse_loop(self, via: Sequence[str]) -> None:
        """Refuse a request that comes from here: its daemons ask each other without an end.

        Raises:
            InvalidRequestError: it is such a request.
        """
        if self.instance in via:
            raise InvalidRequestError(
                "via: this daemon has passed the request on, and is asked for it again: "
                "remote backends lead back to where they are"
            )

    async def _route(
        self, plan: ResolvedRequest[P], context: RequestContext
    ) -> Backend:
        """Choose the backend; a model of the store becomes one when it is named.

        A request without a name passes over backends whose budget is used up.
        """
        self._refuse_loop(plan.via)
        await self.open_stored(
            plan.model, context, lambda: _traits_of(plan, context, UNREAD)
        )
        try:
            backend = self._route_within_budgets(plan)
        except ModelNotFoundError as error:
            if plan.describe:
                error.described = described_models(
                    self.backends, plan.needs, self.names
                )
            raise
        self.budgets.check(backend.name)
        return backend

    def _route_within_budgets(self, plan: ResolvedRequest[P]) -> Backend:
        """Choose the backend, by its budget before by whether it is ready."""
        if plan.model is not None:
            return route(self.backends, plan.needs, plan.model, self.names)
        chosen = route(self.backends, plan.needs, None, self.names)
        if not self.budgets.is_spent(chosen.name):
            return chosen
        rest = [each for each in self.backends if not self.budgets.is_spent(each.name)]
        try:
            return route(rest, plan.needs, None, self.names)
        except InferdError:
            return chosen  # whose refusal says when it may be asked

    async def open_stored(
        self,
        model: str | None,
        context: RequestContext,
        traits: Callable[[], RequestTraits],
    ) -> None:
        """Make a backend of the model of the store that a request means, if it is none yet.

        The request has a place in the queue while the header of that model is read.

        Args:
            model: that the request names; ``None`` if it names none.
            context: of the request.
            traits: gives what decides about its place.

        Raises:
            InferdError: the model cannot be read, or the queue is full.
        """
        if self.store is None or not (name := self.store.unopened(model)):
            return
        with self.queue.admitted(traits()) as permit:
            context.permit = permit
            with permit.until_granted():  # that is, until it is rejected
                await self.store.open(name, context.peer.user)
            permit.raise_rejection()

    async def _wait_loaded(
        self, backend: Backend, permit: Permit, on_loading: OnLoading | None
    ) -> None:
        async def report(loading: Loading) -> None:
            if on_loading is not None:
                with (
                    permit.until_granted()
                ):  # a client that does not read delays nothing
                    await on_loading(loading)

        await self.loader.wait_loaded(
            backend.key, None if on_loading is None else report
        )

    def _locks_for(self, rendered: RenderedJob | None) -> PrepareLocks:
        has_grammar = rendered is not None and bool(rendered.grammar)
        return self.compile_locks if has_grammar else self.prepare_locks

    async def _render(
        self, backend: Backend, job: Job, permit: Permit
    ) -> RenderedJob | None:
        """Have the backend render a job that is not plain, in queue order."""
        if not isinstance(job, GenerateJob) or job.is_plain:
            return None
        async with self.render_locks.acquire(backend.key, permit, self.queue.order):
            return await backend.render(job)


def _traits_of(
    plan: ResolvedRequest[P], context: RequestContext, backend: str
) -> RequestTraits:
    """Return what decides when a request of a backend runs."""
    return RequestTraits(
        backend=backend,
        caller=context.caller,
        priority=plan.priority,
        n_bytes=context.n_bytes,
        writes=isinstance(plan.job, GenerateJob),
        is_live=plan.transcription is not None and plan.transcription.audio.is_open,
    )


async def _report_positions(permit: Permit, on_position: OnPosition) -> None:
    async with aclosing(permit.positions()) as positions:
        async for position in positions:
            with permit.until_granted():  # a client that does not read delays nothing
                await on_position(position)
