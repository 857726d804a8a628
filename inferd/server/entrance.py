"""The way of every request to a backend: a place, a backend, its texts read, its turn."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

import trio

from inferd.admission.gate import Claim
from inferd.backend import Backend, J, Prepared
from inferd.job import GenerateJob
from inferd.resolve.plan import Plan
from inferd.routing import route
from inferd.server.activity import Activity
from inferd.server.desk import Desk
from inferd.server.turns import Turns

Tell = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Entrance:
    """What all services share."""

    backends: Sequence[Backend]
    turns: Turns
    desk: Desk = field(default_factory=Desk)

    @asynccontextmanager
    async def enter(
        self, plan: Plan[J], activity: Activity, *, tell: Tell | None = None
    ) -> AsyncIterator[tuple[Backend, Prepared[J]]]:
        """Hold a permit while inside.

        Args:
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
            async with AsyncExitStack() as prepares:
                async with self.desk.seat(backend.name, turn, self.turns.order):
                    prepared = await prepares.enter_async_context(
                        backend.prepare(plan.job)
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
