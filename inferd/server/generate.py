"""Generation, v1 and v2: a request in, frames of an answer out."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import UNSET

from inferd.backend import EventStream
from inferd.errors import BackendUnavailableError, DeadlineExceededError
from inferd.events import TokenEvent, TokenEventV2
from inferd.job import GenerateJob
from inferd.resolve.blocks import resolve_blocks
from inferd.resolve.plan import Plan
from inferd.resolve.sampling import SEED_MAX
from inferd.resolve.text import resolve_text
from inferd.server.activity import Activity
from inferd.server.answers import Answer, BlocksAnswer, TextAnswer
from inferd.server.apart import resolved_or
from inferd.server.conversations import Conversations
from inferd.server.entrance import Entrance, Tell
from inferd.server.limits import MARKER_BYTES
from inferd.server.reply import Reply
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import GenerateRequest
from inferd.wire.responses import ProgressFrame

R = TypeVar("R")
E = TypeVar("E", TokenEvent, TokenEventV2)


@dataclass(frozen=True)
class GenerateService(Generic[R, E]):
    """Answers generation requests with the first backend that can."""

    resolve: Callable[[R, int, Activity], Plan[GenerateJob]]
    """By the request, a seed and what is known of who asks."""
    opening: Callable[
        [R, Plan[GenerateJob], Activity, Tell | None],
        AbstractAsyncContextManager[EventStream[E]],
    ]
    """Holds a permit and runs the job while inside; may tell places in the queue."""
    begin: Callable[[Plan[GenerateJob], Activity], Answer[E]]

    async def answer(self, request: R, reply: Reply, activity: Activity) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was written.
            PeerGoneError: nobody reads the answer.

        Cancellation: the job is dropped and its permit freed.
        """
        seed = secrets.randbelow(SEED_MAX + 1)
        plan = resolved_or(
            activity.resolved, lambda: self.resolve(request, seed, activity)
        )
        answer = self.begin(plan, activity)
        activity.allow(plan.deadline_ms)
        with activity.scope:
            await self._run(request, plan, answer, reply, activity)
        if activity.scope.cancelled_caught and not reply.is_over:
            self._cut_short(plan, answer, reply, activity)
        if answer.stop_reason is None:
            raise BackendUnavailableError("backend ended stream without terminal frame")
        await reply.finish()
        activity.done(answer.stop_reason)

    async def _run(
        self,
        request: R,
        plan: Plan[GenerateJob],
        answer: Answer[E],
        reply: Reply,
        activity: Activity,
    ) -> None:
        """Have the job done; what is left to be written then keeps nobody waiting."""

        async def tell(position: int) -> None:
            frame = ProgressFrame(
                id=activity.request_id, status="queued", position=position
            )
            reply.put([frame])
            await reply.flush()

        told = tell if plan.job.wants_progress else None
        async with self.opening(request, plan, activity, told) as stream:
            activity.output = stream
            async for events in stream:
                reply.put(answer.frames_of(events))
                if not (reply.is_over or reply.has_written()):
                    with stream.until_over():
                        await reply.flush()

    def _cut_short(
        self,
        plan: Plan[GenerateJob],
        answer: Answer[E],
        reply: Reply,
        activity: Activity,
    ) -> None:
        """End an answer as its caller, an operator or its deadline wants."""
        if activity.is_cancelled:
            reply.put(answer.cancelled(UNSET))
        elif activity.failure is not None:
            raise activity.failure
        elif plan.deadline_ms is not None and not answer.has_begun:
            raise DeadlineExceededError(plan.deadline_ms)
        else:
            reply.put(answer.cancelled("deadline"))


def text_service(entrance: Entrance) -> GenerateService[GenerateRequest, TokenEvent]:
    """Make the service of the v1 socket."""

    @asynccontextmanager
    async def opening(
        _: GenerateRequest,
        plan: Plan[GenerateJob],
        activity: Activity,
        tell: Tell | None,
    ) -> AsyncIterator[EventStream[TokenEvent]]:
        async with (
            entrance.enter(plan, activity, tell=tell) as (backend, prepared),
            backend.generate(prepared) as stream,
        ):
            yield stream

    return GenerateService(
        lambda request, seed, activity: resolve_text(
            request, seed=seed, owner=activity.peer.owner
        ),
        opening,
        TextAnswer,
    )


def blocks_service(entrance: Entrance) -> GenerateService[BlocksRequest, TokenEventV2]:
    """Make the service of the v2 socket."""

    def resolve(
        request: BlocksRequest, seed: int, activity: Activity
    ) -> Plan[GenerateJob]:
        return resolve_blocks(
            request,
            seed=seed,
            owner=activity.peer.owner,
            marker=secrets.token_hex(MARKER_BYTES),
            n_fds=len(activity.fds),
        )

    return GenerateService(resolve, Conversations(entrance).opened, BlocksAnswer)
