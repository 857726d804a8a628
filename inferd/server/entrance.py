"""The way of every request to a backend: a place, a backend, its texts read, its turn."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import trio

from inferd.admission.gate import Claim
from inferd.backend import Backend, J, Prepared
from inferd.job import GenerateJob
from inferd.resolve.plan import Plan
from inferd.routing import route
from inferd.server.activity import Activity
from inferd.server.turns import Turns

Tell = Callable[[int], Awaitable[None]]


class Entrance(NamedTuple):
    """What all services share."""

    backends: Sequence[Backend]
    turns: Turns

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
            async with backend.prepare(plan.job) as prepared:
                activity.input_tokens = prepared.input_tokens
                self.turns.weigh(turn, prepared.input_tokens)
                if tell is not None:
                    async with aclosing(turn.positions()) as positions:
                        async for position in positions:
                            await tell(position)
                await turn.wait()
                activity.started()
                yield backend, prepared
