"""The daemon's own protocol."""

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from inferd.client.callback.configuration import Config
from inferd.client.callback.dialect import AnswerReader, temperature_of
from inferd.client.callback.failures import UNREADABLE, AnswerError, UnsendableError
from inferd.client.callback.http_client import HttpRequest, HttpResponse
from inferd.client.callback.openai_dialect import raw_schema
from inferd.client.callback.requests import (
    ChatRequest,
    StructuredRequest,
    TranscriptionRequest,
)
from inferd.client.core.answer import AnswerCollector, TextEvent
from inferd.client.core.failures import ClientError, ProtocolError, RequestFailedError
from inferd.client.exchange import Exchange
from inferd.client.frames import BlocksAnswer, ClientBlocksDone
from inferd.client.library.recordings import (
    TranscribeOptions,
    samples_of,
    transcribe_request,
)
from inferd.client.media.errors import MediaError
from inferd.client.surfaces import BLOCKS
from inferd.wire.blocks import BlocksRequest, Message, ResponseFormat, TextBlock
from inferd.wire.requests import Role

REQUEST_ID: Final = "1"
"""Of each request, which has a connection of its own: the same request is the same bytes."""
_RAW: Final = "f32"


class DaemonDialect:
    """Writes requests for the v2 socket."""

    def chat(
        self, request: ChatRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a chat, whose answer is streamed.

        Raises:
            AnswerError: it cannot be written.
        """
        return _written(_blocks(request, config, stream=True), config)

    def complete(
        self, request: StructuredRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a structured request.

        Raises:
            AnswerError: it cannot be written.
        """
        form = ResponseFormat(type="json_schema", schema=raw_schema(request))
        return _written(_blocks(request, config, stream=False, form=form), config)

    def transcribe(
        self, request: TranscriptionRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a transcription: a request and the samples behind it.

        Raises:
            AnswerError: the audio cannot be decoded.
        """
        options: TranscribeOptions = {"model": config.model} if config.model else {}
        asked = transcribe_request(REQUEST_ID, options)
        try:
            is_raw = request.format == _RAW
            blocks = [request.audio_data] if is_raw else samples_of(request.audio_data)
            return _written(asked, config, b"".join(blocks))
        except MediaError as error:
            raise UnsendableError(f"The audio cannot be decoded: {error}") from error


def _blocks(
    request: ChatRequest | StructuredRequest,
    config: Config,
    *,
    stream: bool,
    form: ResponseFormat | None = None,
) -> BlocksRequest:
    return BlocksRequest(
        id=REQUEST_ID,
        messages=[
            Message(cast("Role", each.role), [TextBlock(each.content)])
            for each in request.messages
        ],
        model=config.model or None,
        temperature=temperature_of(request, config),
        max_tokens=request.max_tokens,
        seed=config.seed,
        stream=stream,
        response_format=form,
    )


def _written(
    request: BlocksRequest, config: Config, samples: bytes | None = None
) -> tuple[HttpRequest, AnswerReader]:
    exchange = Exchange(BLOCKS)
    try:
        exchange.start(request)
        body = _line(request)
        if samples is not None:
            body += exchange.append(samples, is_last=True)
    except ClientError as error:
        raise UnsendableError(str(error)) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsendableError(f"The request cannot be written: {error}") from error
    asked = HttpRequest(
        url=f"unix:{BLOCKS.socket}", body=body, timeout_s=config.timeout_s
    )
    return asked, FrameReader(exchange)


def _line(request: BlocksRequest) -> bytes:
    """Write a request with the fields that are set, and no other."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(request).items()
        if value is not None and value != []
    }
    return msgspec.json.encode(fields) + b"\n"


class FrameReader:
    """Reads the frames of an answer.

    Args:
        exchange: of the request, which is started.
    """

    def __init__(self, exchange: Exchange[BlocksRequest, BlocksAnswer]) -> None:
        self._exchange = exchange
        self._collector = AnswerCollector()
        self._done: ClientBlocksDone | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the last frame has come."""
        return self._done is not None

    @property
    def was_cut(self) -> bool:
        """Whether the structure is not complete."""
        return self._done is not None and self._done.structure_complete is False

    @property
    def was_cancelled(self) -> bool:
        """Whether somebody else has cancelled it, as an operator may."""
        return self._done is not None and self._done.stop_reason == "cancelled"

    @property
    def n_output(self) -> int | None:
        """Tokens of the answer."""
        return None if self._done is None else self._done.usage.output_tokens

    @property
    def n_total(self) -> int | None:
        """Tokens of the prompt and the answer."""
        if self._done is None:
            return None
        return self._done.usage.input_tokens + self._done.usage.output_tokens

    def feed(self, data: bytes) -> Sequence[str]:
        """Add bytes; return the texts that have come.

        Raises:
            AnswerError: the answer is an error, or cannot be read.
        """
        self._exchange.feed(data)
        texts: list[str] = []
        try:
            while (frame := self._exchange.next_frame()) is not None:
                event = self._collector.read(frame)
                if isinstance(event, TextEvent):
                    texts.append(event.text)
                if isinstance(frame, ClientBlocksDone):
                    self._done = frame
        except RequestFailedError as error:
            raise LateAnswerError(texts, error.frame.message, error.code) from error
        except ProtocolError as error:
            raise LateAnswerError(texts, UNREADABLE) from error
        return texts

    def end(self, _: HttpResponse) -> Sequence[str]:
        """Return nothing: the frames had all."""
        return ()


class LateAnswerError(AnswerError):
    """An answer that failed after texts that came together with its failure.

    Args:
        texts: what came before.
        message: for the program's user.
        code: of the daemon, if it refused.
    """

    def __init__(self, texts: Sequence[str], message: str, code: str = "") -> None:
        self.texts = texts
        super().__init__(message, code)
