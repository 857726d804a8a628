"""The daemon's sockets: a connection for one request at a time, and only so many at once."""

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.media.attach import AttachedRequest, attached
from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import DaemonFrame, DaemonRequest, Question
from inferd.bridge.upstream.failures import failure_of
from inferd.bridge.upstream.media_check import named_model, refusal_of_media
from inferd.bridge.upstream.models import describe, list_models
from inferd.bridge.upstream.own_requests import OwnRequests
from inferd.bridge.upstream.plain_models import PlainModels
from inferd.bridge.upstream.pool import ClientPool
from inferd.bridge.upstream.second_try import is_plain, is_unserved, second_try
from inferd.client.asynchronous import AsyncFrameClient, connect
from inferd.client.connection.loop import LoopConnection
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ClientError,
    RequestFailedError,
    UnreadError,
    with_options,
)
from inferd.client.frames import BlocksAnswer
from inferd.client.surfaces import BLOCKS
from inferd.surfaces import EMBED, RERANK, V2
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, RerankRequest


class DaemonClient:
    """A client of the daemon for many callers.

    A connection has one request at a time, and closing it ends the request.

    Args:
        directory: of the sockets; ``None`` for the default ones.
        max_requests: requests at once.
        is_gateway: whether the daemon is told the principal of each request.
        decoders: of pictures and sound; ``None`` refuses requests with such.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        max_requests: int,
        is_gateway: bool = False,
        decoders: MediaDecoders | None = None,
    ) -> None:
        self._directory = directory
        self._is_gateway = is_gateway
        self._decoders = decoders
        self._plain_models = PlainModels()
        self._pool = ClientPool(directory)
        self._live: set[LoopConnection[BlocksRequest, BlocksAnswer]] = set()
        self._is_closed = False
        self.own = OwnRequests(directory)
        self.places = SharedLimit(max_requests)
        """Requests that are with the daemon now, by principal."""

    @property
    def n_requests(self) -> int:
        """Requests that are with the daemon now."""
        return self.places.total

    def close(self) -> None:
        """End all requests, each with a failure that its caller is told; refuse further ones."""
        self._is_closed = True
        self._pool.close()
        for connection in self._live:
            connection.close()

    async def ask(
        self, question: Question, principal: str
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        """Send a request; yield the frames of its answer as they come; use ``aclosing``.

        Frames that have come together are yielded together. Pictures and sound are decoded
        first, if a model takes them.

        Args:
            question: once its answer has enough, the request is cancelled.
            principal: who asks.

        Raises:
            BridgeError: the daemon refuses, or does not answer to the end.

        Cancellation: ends the request.
        """
        with (
            self._slot(principal),
            self.own.noted(question.request.id, principal),
            self._telling_failures(question.field_names),
        ):
            if question.sound is not None:
                async with aclosing(self._ask_live(question, principal)) as live:
                    async for frames in live:
                        yield frames
                return
            await self._check_media(question, principal)
            decoding = attached(question, self._decoders, principal)
            async with AsyncExitStack() as stack:
                asked = await stack.enter_async_context(decoding)
                client = stack.enter_context(self._pool.client())
                batches = self._send_again(client, question, asked, principal)
                await stack.enter_async_context(aclosing(batches))
                is_cancelled = False
                async for frames in batches:
                    yield frames
                    if question.answer.has_enough and not is_cancelled:
                        is_cancelled = True
                        await client.cancel(asked.request.id)

    async def _ask_live(
        self, question: Question, principal: str
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        """Send a request whose sound follows, and yield the frames of its answer."""
        assert question.sound is not None  # noqa: S101  # it is such a question
        assert isinstance(question.request, BlocksRequest)  # noqa: S101  # the same
        connection = LoopConnection(BLOCKS, self._directory, ())
        self._live.add(connection)
        asked = with_options(question.request, None, self._asker(principal))
        try:
            await connection.begin(replace(asked, progress=True))
            question.sound.opened(connection)
            while not connection.is_done:
                yield await connection.next_frames()
        finally:
            self._live.discard(connection)
            connection.close()

    async def _check_media(self, question: Question, principal: str) -> None:
        """Check that a model takes the media of a question, as far as the daemon tells.

        Raises:
            ClientError: none does, or the daemon does not answer.
        """
        if not question.media:
            return
        asker = self._asker(principal)
        refusal = None
        with suppress(RequestFailedError):  # such as of a header that cannot be read
            models = await describe(self._directory, V2, asker)
            named = named_model(question, models)
            if named is not None and named.is_unread is True:
                read = await describe(self._directory, V2, asker, named.backend)
                models = [*(each for each in models if each is not named), *read]
            refusal = refusal_of_media(question, models)
        if refusal is not None:
            raise RequestFailedError(refusal)

    def _asker(self, principal: str) -> str | None:
        """Return what the daemon is told of who asks: nothing unless it is a gateway's."""
        return principal if self._is_gateway and principal else None

    async def _send_again(
        self,
        client: AsyncFrameClient,
        question: Question,
        asked: AttachedRequest,
        principal: str,
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        """Send a request, and where it is refused those that may be sent instead."""
        request: DaemonRequest | None = self._plain_models.without_reasoning(
            question, asked.request
        )
        unserved: RequestFailedError | None = None
        while request is not None:
            sent, request = request, None
            batches = self._send_until_read(client, sent, principal, asked.descriptors)
            try:
                async with aclosing(batches):
                    async for frames in batches:
                        yield frames
            except RequestFailedError as error:
                if is_plain(question, sent, error.frame):
                    self._plain_models.add(sent.model)
                if is_unserved(error.frame):
                    unserved = error = unserved or error
                request = second_try(question, sent, error.frame)
                if request is not None and request.model == asked.request.model:
                    unserved = None  # the refusal of this one is to be told
                if request is None:
                    raise error from None

    async def _send_until_read(
        self,
        client: AsyncFrameClient,
        request: DaemonRequest,
        principal: str,
        descriptors: Sequence[int],
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        """Send a request, and once more if the daemon has closed a kept connection before it.

        It has not computed a request that it has not read.
        """
        for is_last in (False, True):
            batches = self._send(client, request, principal, descriptors)
            try:
                async with aclosing(batches):
                    async for frames in batches:
                        yield frames
            except UnreadError:
                if is_last:
                    raise
            else:
                return

    def _send(
        self,
        client: AsyncFrameClient,
        request: DaemonRequest,
        principal: str,
        descriptors: Sequence[int] = (),
    ) -> AsyncGenerator[Sequence[DaemonFrame], None]:
        """Send a request, with the principal where the bridge is a gateway of the daemon."""
        asker = self._asker(principal)
        match request:
            case BlocksRequest():
                # tells the position in the queue, and the tokens of the prompt
                told = replace(request, progress=True)
                return client.converse_batched(
                    told, descriptors=descriptors, principal=asker
                )
            case EmbedRequest():
                return _one(partial(client.embed, request, principal=asker))
            case RerankRequest():
                return _one(partial(client.rerank, request, principal=asker))

    @contextmanager
    def _telling_failures(self, names: Mapping[str, str]) -> Iterator[None]:
        """Turn errors of the client library into failures of the bridge."""
        try:
            yield
        except (NoDaemonError, ClientError, OSError) as error:
            if self._is_closed:
                raise BridgeError(
                    Reason.UNAVAILABLE, "the bridge is going down", retry_after_s=1.0
                ) from error
            raise failure_of(error, names) from error

    @contextmanager
    def _slot(self, principal: str) -> Iterator[None]:
        """Take one of the places for requests, of which a principal has half at most."""
        if not self.places.take(principal):
            raise BridgeError(
                Reason.QUEUE_FULL,
                f"the bridge has {self.places.limit} requests at once, {self.places.share} "
                "of them of one token or user",
                retry_after_s=1.0,
            )
        try:
            yield
        finally:
            self.places.give_back(principal)

    async def is_up(self) -> bool:
        """Tell whether the daemon accepts connections for requests."""
        for surface in (V2, EMBED, RERANK):
            try:
                stream = await connect(surface.socket, self._directory)
            except (NoDaemonError, ClientError, OSError):
                continue
            await stream.aclose()
            return True
        return False

    async def models(self) -> list[OfferedModel]:
        """Ask the daemon which names requests may use; raises as ``list_models`` does."""
        return await list_models(self._directory, None)


async def _one(
    answer: Callable[[], Awaitable[DaemonFrame]],
) -> AsyncGenerator[Sequence[DaemonFrame], None]:
    """Yield the frame of an answer that has one alone."""
    yield [await answer()]
