"""v1 generation: a request in, token frames and one done frame out."""

import secrets
from collections.abc import Sequence

from inferd.backend import Backend, BackendCapabilities, Done, Token, TokenEvent
from inferd.errors import BackendUnavailableError
from inferd.resolve import resolve_generate
from inferd.routing import route
from inferd.server.activity import Activity
from inferd.server.reply import Reply
from inferd.server.turns import Turns
from inferd.wire.requests import GenerateRequest
from inferd.wire.responses import DoneFrame, Response, TokenFrame

SEEDS = 2**32 - 1
"""How many seeds there are; the largest u32 is not one (llama.cpp takes it as random)."""


class GenerateService:
    """Answers generation requests with the first backend that can."""

    def __init__(self, backends: Sequence[Backend], turns: Turns) -> None:
        self._backends = backends
        self._turns = turns

    async def answer(
        self, request: GenerateRequest, reply: Reply, activity: Activity
    ) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was written.
            PeerGoneError: nobody reads the answer.

        Cancellation: the job is dropped and its permit freed.
        """
        job = resolve_generate(request, seed=secrets.randbelow(SEEDS))
        with self._turns.admitted() as turn:
            backend = route(self._backends, _can_generate)
            activity.backend = backend.name
            async with backend.prepare(job) as prepared:
                await turn.wait()
                activity.started()
                answer = _Answer(request, backend.name)
                async with backend.generate(prepared) as stream:
                    async for events in stream:
                        activity.spoke()
                        await reply.send(answer.frames_of(events))
            if answer.done is None:
                raise BackendUnavailableError(
                    "backend ended stream without terminal frame"
                )
            activity.done(answer.done)


def _can_generate(able: BackendCapabilities) -> bool:
    return able.generate


class _Answer:
    """The frames of one answer; it keeps the text, which ``done`` repeats."""

    def __init__(self, request: GenerateRequest, backend: str) -> None:
        self._id = request.id
        self._streams = request.stream is not False
        self._backend = backend
        self._texts: list[str] = []
        self.done: DoneFrame | None = None

    def frames_of(self, events: Sequence[TokenEvent]) -> list[Response]:
        return [frame for event in events for frame in self._frames_of(event)]

    def _frames_of(self, event: TokenEvent) -> list[Response]:
        match event:
            case Token(text):
                self._texts.append(text)
                return [TokenFrame(id=self._id, content=text)] if self._streams else []
            case Done(stop_reason=why, usage=usage):
                self.done = DoneFrame(
                    id=self._id,
                    content="".join(self._texts),
                    usage=usage,
                    stop_reason=why,
                    backend=self._backend,
                )
                return [self.done]
