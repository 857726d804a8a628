"""The way of every request to a backend: a place, a backend, its texts read, its turn."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from dataclasses import dataclass, field
from typing import TypeVar

import trio
from msgspec.structs import replace

from inferd.admission.gate import Claim
from inferd.backend import Backend, J, Prepared
from inferd.config import LimitSettings
from inferd.job import GenerateJob, Job, Written
from inferd.resolve.plan import Plan
from inferd.routing import route
from inferd.server.activity import Activity
from inferd.server.desk import Desk
from inferd.server.holdings import MediaRoom
from inferd.server.limits import MAX_MEDIA_FILES
from inferd.server.turns import Turn, Turns

P = TypeVar("P", bound=Job)
Tell = Callable[[int], Awaitable[None]]
Bring = Callable[[Backend], Awaitable[tuple[J, Sequence[int]]]]
"""Makes the job for a backend, and opens the files with its media."""


def _room_of_defaults() -> MediaRoom:
    return MediaRoom(LimitSettings(), MAX_MEDIA_FILES, lambda: 0)


@dataclass(frozen=True)
class Entrance:
    """What all services share."""

    backends: Sequence[Backend]
    turns: Turns
    desk: Desk = field(default_factory=Desk)
    writing: Desk = field(default_factory=Desk)
    """Where requests wait that are not plain: they hold up none that are."""
    compiling: Desk = field(default_factory=Desk)
    """Where those of them wait whose grammar the backend compiles."""
    media: MediaRoom = field(default_factory=_room_of_defaults)

    def enter(
        self, plan: Plan[J], activity: Activity, *, tell: Tell | None = None
    ) -> AbstractAsyncContextManager[tuple[Backend, Prepared[J]]]:
        """Hold a permit while inside, for a job that is the same for any backend."""

        async def bring(_: Backend) -> tuple[J, Sequence[int]]:
            return plan.job, ()

        return self.enter_with(bring, plan, activity, tell=tell)

    @asynccontextmanager
    async def enter_with(
        self,
        bring: Bring[J],
        plan: Plan[P],
        activity: Activity,
        *,
        tell: Tell | None = None,
    ) -> AsyncIterator[tuple[Backend, Prepared[J]]]:
        """Hold a permit while inside.

        Args:
            bring: called once a backend is chosen, and nothing else of it is being read;
                the descriptors stay the caller's, and open while inside.
            plan: what is to be done.
            activity: told what happens.
            tell: told the place in the queue, if it has to wait, and every change.

        Raises:
            InferdError: it cannot be served.

        Cancellation: the job is dropped and its place freed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # ended before it took a place
        claim = Claim(
            uid=activity.peer.uid,
            priority=plan.priority,
            n_bytes=activity.n_bytes,
            writes=isinstance(plan.job, GenerateJob),
        )
        with self.turns.admitted(claim, is_watched=tell is not None) as turn:
            activity.turn = turn
            backend = route(self.backends, plan.needs)
            activity.backend = backend.name
            written = await self._written(backend, plan.job, turn)
            async with AsyncExitStack() as prepares:
                desk = self.compiling if written and written.grammar else self.desk
                async with desk.seat(backend.name, turn, self.turns.order):
                    job, fds = await bring(backend)
                    if written is not None and isinstance(job, GenerateJob):
                        job = replace(job, written=written)
                    prepared = await prepares.enter_async_context(
                        backend.prepare(job, fds)
                    )
                activity.input_tokens = prepared.input_tokens
                self.turns.weigh(turn, prepared.input_tokens)
                if tell is not None:
                    async with aclosing(turn.positions()) as positions:
                        async for position in positions:
                            with turn.until_come():  # who does not read holds up nobody
                                await tell(position)
                await turn.wait()
                activity.started()
                yield backend, prepared

    async def _written(self, backend: Backend, job: Job, turn: Turn) -> Written | None:
        """Have written what is not plain of a job, in the order of turns."""
        if not isinstance(job, GenerateJob) or job.is_plain:
            return None
        async with self.writing.seat(backend.name, turn, self.turns.order):
            return await backend.write(job)
