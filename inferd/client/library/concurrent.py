"""The library's client for tasks of trio and asyncio."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from os import PathLike
from time import monotonic
from typing import TypeVar, Unpack, cast

import anyio
from anyio import to_thread

from inferd.client.closing import AsyncClosedOnLeaving
from inferd.client.core import plans
from inferd.client.core.answer import FinalAnswer
from inferd.client.core.conversation import (
    AnswerOptions,
    ChatOptions,
    Prompt,
    chat_request,
)
from inferd.client.core.failures import ClientError, NoDaemonError, UntrustedServerError
from inferd.client.core.offers import DaemonStatus, ServedFacts, is_served
from inferd.client.core.plans import (
    AnySurface,
    Ask,
    CallTool,
    Effect,
    Plan,
    ToolBounds,
    ToolRun,
)
from inferd.client.core.retries import Retries
from inferd.client.core.tools import ToolError, ToolFunctions, result_text
from inferd.client.core.vectors import Embeddings, Ranking
from inferd.client.discovery import backoff
from inferd.client.library.async_sockets import async_transport_for
from inferd.client.library.async_streams import AsyncChatStream, AsyncFrames
from inferd.client.library.blocking import READY_S
from inferd.client.library.recordings import (
    LiveRecording,
    TranscribeOptions,
    TranscriptCollector,
    ignore,
    is_file,
    transcribe_request,
)
from inferd.client.library.settings import (
    ClientOptions,
    ClientSettings,
    as_texts,
    new_id,
)
from inferd.client.surfaces import BLOCKS
from inferd.client.transcripts import Transcript, TranscriptSegment
from inferd.wire.requests import EmbedRequest, RerankRequest

R = TypeVar("R")
T = TypeVar("T")


class AsyncClient(AsyncClosedOnLeaving):
    """Client of a daemon for tasks of trio or asyncio, over its sockets or a bridge.

    All methods raise ``ClientError``, of the class that ``inferd.client.core.failures`` has
    for the cause. A request that the daemon refuses because it is busy is sent again,
    ``max_retries`` times at most; one whose answer has begun never is. A call that is
    cancelled, or ends with another exception, has cancelled its request.

    Args:
        path: the directory of the sockets, or one of them; ``None`` for the default places.
        options: see ``ClientOptions``.

    Raises:
        ValueError: a number is out of range.

    Ownership: tasks of one event loop share it, with a connection for each request;
    ``aclose`` it, or use it in an ``async with`` block: requests in progress are cancelled
    then.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._settings = ClientSettings(path=path, **options)
        self._transport = async_transport_for(self._settings)

    async def aclose(self) -> None:
        """Close all connections, for good; requests in progress are cancelled."""
        await self._transport.aclose()

    # --- answers ------------------------------------------------------------------------

    async def chat(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> FinalAnswer:
        """Have a prompt answered; return the whole answer.

        Args:
            prompt: a text, or messages with ``role`` and ``content``.
            options: see ``ChatOptions``.
        """
        return await self._run(plans.chat(new_id, prompt, options))

    def stream(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> AsyncChatStream:
        """Have a prompt answered; iterate over the text while it is generated.

        Args:
            prompt: as for ``chat``.
            options: see ``ChatOptions``.
        """
        request = chat_request(new_id(), prompt, options, stream=True)
        surface = cast("AnySurface", BLOCKS)
        return AsyncChatStream(
            AsyncFrames(self._transport, surface, request, self._retries())
        )

    async def parse(
        self, wanted: type[T], prompt: Prompt, **options: Unpack[AnswerOptions]
    ) -> T:
        """Have a prompt answered with a value of a type.

        The answer is held to the JSON schema of the type while it is generated.

        Args:
            wanted: a dataclass, a ``msgspec.Struct``, a model of pydantic, or another type
                that ``msgspec`` knows.
            prompt: as for ``chat``.
            options: see ``AnswerOptions``.

        Raises:
            TypeError: no schema can be made of the type.
            AnswerNotOfType: the answer was cut short, or breaks a rule that is in no schema.
        """
        return await self._run(plans.parse(new_id, wanted, prompt, options))

    async def run_tools(
        self,
        prompt: Prompt,
        tools: ToolFunctions,
        *,
        max_turns: int = plans.MAX_TURNS,
        max_seconds: float = plans.MAX_SECONDS,
        **options: Unpack[AnswerOptions],
    ) -> ToolRun:
        """Have a prompt answered, and call the tools that the model asks for.

        Args:
            prompt: as for ``chat``.
            tools: functions, or what ``tool`` makes of them, called one after another: those
                that are not ``async`` in a thread. A ``ToolError`` is told to the model, any
                other exception ends the run.
            max_turns: answers of the model at most.
            max_seconds: seconds at most; a tool that runs then is not interrupted.
            options: see ``AnswerOptions``.

        Raises:
            ToolLoopExceeded: a bound was reached; it has the conversation so far.
        """
        bounds = ToolBounds(max_turns, monotonic() + max_seconds, monotonic)
        return await self._run(plans.run_tools(new_id, prompt, tools, bounds, options))

    async def count_tokens(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> int:
        """Count the tokens of a prompt as the model would read it; nothing is generated."""
        return await self._run(plans.count_tokens(new_id, prompt, options))

    # --- vectors, rankings, transcripts -------------------------------------------------

    async def embed(
        self,
        texts: str | Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        task: str | None = None,
    ) -> Embeddings:
        """Compute the vectors of any number of texts, in requests of bounded size.

        Args:
            texts: one or more, none of them empty.
            model: the name or an alias of the backend that must answer.
            dimensions: numbers of each vector to keep, from its beginning; default all.
            task: purpose of the vectors, such as ``retrieval_query``, for models that
                distinguish tasks.
        """
        request = EmbedRequest(model=model, dimensions=dimensions, task=task)
        return await self._run(plans.embed(new_id, as_texts(texts), request))

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        model: str | None = None,
        top_n: int | None = None,
    ) -> Ranking:
        """Order any number of documents by relevance to a query.

        Args:
            query: the search text; not empty.
            documents: none of them empty.
            model: the name or an alias of the backend that must answer.
            top_n: return only this many of the best documents; default all.
        """
        request = RerankRequest(query=query, documents=[], model=model, top_n=top_n)
        return await self._run(plans.rerank(new_id, as_texts(documents), request))

    async def transcribe(
        self,
        recording: LiveRecording,
        *,
        on_segment: Callable[[TranscriptSegment], None] = ignore,
        on_partial: Callable[[str], None] = ignore,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript:
        """Transcribe a recording, or speech while it is recorded.

        Args:
            recording: the path of a file, the bytes of one, or an iterator of samples,
                asynchronous or not: blocks of mono little-endian 32-bit floats, 16,000 a
                second. A live recording is not sent again if it is refused.
            on_segment: called with each segment as it is transcribed.
            on_partial: called with text that may still change, of live recordings.
            options: see ``TranscribeOptions``.

        Raises:
            SoundError: the file cannot be decoded.
            MissingExtraError: PyAV is not installed, and it is a file.
        """
        retries = self._retries() if is_file(recording) else Retries.none()
        collector = TranscriptCollector(on_segment, on_partial)
        while True:
            request = transcribe_request(new_id(), options)
            try:
                await self._transport.transcribe(request, recording, collector.read)
            except ClientError as error:
                pause = None if collector.last else retries.pause_after(error)
                if pause is None:
                    raise
            else:
                return collector.transcript()
            await anyio.sleep(pause)

    # --- the daemon ---------------------------------------------------------------------

    async def models(self) -> list[ServedFacts]:
        """List the models that requests may name."""
        return await self._run(plans.models(new_id))

    async def status(self) -> DaemonStatus:
        """Ask how the daemon is; this user must be allowed to."""
        return await self._transport.status()

    async def wait_ready(self, timeout: float = READY_S) -> None:  # noqa: ASYNC109  # as ``Client``
        """Wait until the daemon answers requests.

        Args:
            timeout: seconds to wait at most.

        Raises:
            NoDaemonError: it does not answer by then.
            UntrustedServerError: a user who is not trusted listens.
        """
        deadline = monotonic() + timeout
        for pause in backoff():
            reason = "the daemon is not ready"
            try:
                if await self._is_ready():
                    return
            except UntrustedServerError:
                raise
            except ClientError as error:
                reason = str(error)
            if monotonic() > deadline:
                raise NoDaemonError(reason)
            await anyio.sleep(pause)

    async def _is_ready(self) -> bool:
        """Tell whether the daemon answers, whether or not this user may ask its status."""
        try:
            return (await self.status()).is_ready
        except UntrustedServerError:
            raise
        except ClientError:
            return is_served(await self.models())

    # --- how plans are run --------------------------------------------------------------

    async def _run(self, plan: Plan[R]) -> R:
        try:
            effect = next(plan)
            while True:
                try:
                    result = await self._do(effect)
                except Exception as error:  # noqa: BLE001  # the plan decides
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as end:
            value: R = end.value
            return value

    async def _do(self, effect: Effect) -> object:
        match effect:
            case Ask(surface, request):
                asked = AsyncFrames(self._transport, surface, request, self._retries())
                async with aclosing(asked) as frames:
                    return [frame async for frame in frames.all()]
            case CallTool(called, call):
                bound = called.bind(call)
                try:
                    if called.is_async:
                        return result_text(await cast("Awaitable[object]", bound()))
                    return result_text(await to_thread.run_sync(bound))
                except ToolError as error:
                    return f"error: {error}"

    def _retries(self) -> Retries:
        return Retries(self._settings.max_retries)
