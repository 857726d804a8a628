"""The library's client for threads."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from time import monotonic, sleep
from typing import Final, TypeVar, Unpack, cast

from inferd.client.closing import ClosedOnLeaving
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
from inferd.client.library.recordings import (
    Recording,
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
from inferd.client.library.sockets import transport_for
from inferd.client.library.streams import ChatStream
from inferd.client.surfaces import BLOCKS
from inferd.client.transcripts import Transcript, TranscriptSegment
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, Request, RerankRequest
from inferd.wire.responses import Response

R = TypeVar("R")
T = TypeVar("T")

READY_S: Final = 60.0
"""Seconds that ``wait_ready`` waits unless the caller says otherwise: a model of some GB loads
in less."""


class Client(ClosedOnLeaving):
    """Client of a daemon for threads, over its sockets or a bridge.

    All methods raise ``ClientError``, of the class that ``inferd.client.core.failures`` has
    for the cause. A request that the daemon refuses because it is busy is sent again,
    ``max_retries`` times at most; one whose answer has begun never is. A call that ends with
    an exception, ``KeyboardInterrupt`` included, has cancelled its request.

    Args:
        path: the directory of the sockets, or one of them; ``None`` for the default places.
        options: see ``ClientOptions``.

    Raises:
        ValueError: a number is out of range.

    Ownership: threads share it, with a connection for each request; ``close`` it, or use it
    in a ``with`` block: requests in progress are cancelled then.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._settings = ClientSettings(path=path, **options)
        self._transport = transport_for(self._settings)

    def close(self) -> None:
        """Close all connections, for good; requests in progress are cancelled."""
        self._transport.close()

    # --- answers ------------------------------------------------------------------------

    def chat(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> FinalAnswer:
        """Have a prompt answered; return the whole answer.

        Args:
            prompt: a text, or messages with ``role`` and ``content``.
            options: see ``ChatOptions``.
        """
        return self._run(plans.chat(new_id, prompt, options))

    def stream(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> ChatStream:
        """Have a prompt answered; iterate over the text while it is generated.

        Args:
            prompt: as for ``chat``.
            options: see ``ChatOptions``.
        """
        request = chat_request(new_id(), prompt, options, stream=True)
        frames = self._frames(cast("AnySurface", BLOCKS), request)
        return ChatStream(frames, partial(self._transport.cancel, request.id))

    def parse(
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
        return self._run(plans.parse(new_id, wanted, prompt, options))

    def run_tools(
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
            tools: functions, or what ``tool`` makes of them. They are called in this thread,
                one after another; a ``ToolError`` is told to the model, any other exception
                ends the run.
            max_turns: answers of the model at most.
            max_seconds: seconds at most; a tool that runs then is not interrupted.
            options: see ``AnswerOptions``.

        Raises:
            ToolLoopExceeded: a bound was reached; it has the conversation so far.
        """
        bounds = ToolBounds(max_turns, monotonic() + max_seconds, monotonic)
        return self._run(plans.run_tools(new_id, prompt, tools, bounds, options))

    def count_tokens(self, prompt: Prompt, **options: Unpack[ChatOptions]) -> int:
        """Count the tokens of a prompt as the model would read it; nothing is generated."""
        return self._run(plans.count_tokens(new_id, prompt, options))

    # --- vectors, rankings, transcripts -------------------------------------------------

    def embed(
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
        return self._run(plans.embed(new_id, as_texts(texts), request))

    def rerank(
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
        return self._run(plans.rerank(new_id, as_texts(documents), request))

    def transcribe(
        self,
        recording: Recording,
        *,
        on_segment: Callable[[TranscriptSegment], None] = ignore,
        on_partial: Callable[[str], None] = ignore,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript:
        """Transcribe a recording, or speech while it is recorded.

        Args:
            recording: the path of a file, the bytes of one, or an iterator of samples:
                blocks of mono little-endian 32-bit floats, 16,000 a second. While an
                iterator waits for samples it may yield empty blocks, so that segments are
                told meanwhile. A live recording is not sent again if it is refused.
            on_segment: called with each segment as it is transcribed.
            on_partial: called with text that may still change, of live recordings.
            options: see ``TranscribeOptions``.

        Raises:
            SoundError: the file cannot be decoded.
            MissingExtraError: PyAV is not installed, and it is a file.
        """
        collector = TranscriptCollector(on_segment, on_partial)
        request = transcribe_request(new_id(), options)
        with closing(self._transcription(recording, request)) as frames:
            for frame in frames:
                collector.read(frame)
        return collector.transcript()

    def _transcription(
        self, recording: Recording, request: BlocksRequest
    ) -> Generator[Response, None, None]:
        retries = self._retries() if is_file(recording) else Retries.none()
        return self._frames(cast("AnySurface", BLOCKS), request, recording, retries)

    # --- the daemon ---------------------------------------------------------------------

    def models(self) -> list[ServedFacts]:
        """List the models that requests may name."""
        return self._run(plans.models(new_id))

    def status(self) -> DaemonStatus:
        """Ask how the daemon is; this user must be allowed to."""
        return self._transport.status()

    def wait_ready(self, timeout: float = READY_S) -> None:
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
                if self._is_ready():
                    return
            except UntrustedServerError:
                raise
            except ClientError as error:
                reason = str(error)
            if monotonic() > deadline:
                raise NoDaemonError(reason)
            sleep(pause)

    def _is_ready(self) -> bool:
        """Tell whether the daemon answers, whether or not this user may ask its status."""
        try:
            return self.status().is_ready
        except UntrustedServerError:
            raise
        except ClientError:
            return is_served(self.models())

    # --- how plans are run --------------------------------------------------------------

    def _run(self, plan: Plan[R]) -> R:
        try:
            effect = next(plan)
            while True:
                try:
                    result = self._do(effect)
                except Exception as error:  # noqa: BLE001  # the plan decides
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as end:
            value: R = end.value
            return value

    def _do(self, effect: Effect) -> object:
        match effect:
            case Ask(surface, request):
                return [*self._frames(surface, request)]
            case CallTool(called, call):
                if called.is_async:
                    raise TypeError(f"tool {called.name} is async: use AsyncClient")
                try:
                    return result_text(called.bind(call)())
                except ToolError as error:
                    return f"error: {error}"

    def _retries(self) -> Retries:
        return Retries(self._settings.max_retries)

    def _frames(
        self,
        surface: AnySurface,
        request: Request,
        recording: Recording | None = None,
        retries: Retries | None = None,
    ) -> Generator[Response, None, None]:
        """Yield the frames of an answer; send a refused request again."""
        retries = retries or self._retries()
        while True:
            has_begun = False
            asked = self._transport.ask(surface, request, recording)
            try:
                with closing(asked) as frames:
                    for frame in frames:
                        has_begun = True
                        yield frame
            except ClientError as error:
                pause = None if has_begun else retries.pause_after(error)
                if pause is None:
                    raise
            else:
                return
            sleep(pause)
