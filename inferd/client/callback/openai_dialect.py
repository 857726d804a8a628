"""OpenAI's API for chats, and whisper.cpp's for speech."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from inferd.client.callback.configuration import Config
from inferd.client.callback.dialect import AnswerReader, temperature_of
from inferd.client.callback.failures import UNREADABLE, AnswerError, UnsendableError
from inferd.client.callback.http_client import HttpRequest, HttpResponse
from inferd.client.callback.requests import (
    ChatRequest,
    StructuredRequest,
    TranscriptionRequest,
)
from inferd.client.core.bridge_calls import auth_headers, wav_of
from inferd.errors import FrameTooLargeError
from inferd.wire.framing import LineSplitter

LINE_MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one event of a stream; a longer one is none."""
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one answer that is not streamed."""
_BOUNDARY: Final = "inferd-f2b1d6c07a9e4d35"
"""Between the parts of a form: always the same, so that the same request is the same bytes."""
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_OK: Final = 200
DECODE_FAILURES: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Piece(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None


class _Usage(Struct):
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Failure(Struct):
    message: str = ""
    code: str | int | None = None
    type: str | None = None


class _Event(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Failure | str | None = None
    text: str | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class OpenAiDialect:
    """Writes requests for a server.

    Args:
        url: of the server, with or without ``/v1``.
    """

    def __init__(self, url: str) -> None:
        self._root = url.rstrip("/").removesuffix("/v1")

    def chat(
        self, request: ChatRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a chat, whose answer is streamed."""
        return self._post(_fields(request, config, stream=True), config), EventReader()

    def complete(
        self, request: StructuredRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a structured request, whose answer is whole.

        Raises:
            AnswerError: the schema is no JSON.
        """
        form = {"name": request.schema_name, "schema": raw_schema(request)}
        fields = {
            **_fields(request, config, stream=False),
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        return self._post(fields, config), WholeReader()

    def transcribe(
        self, request: TranscriptionRequest, config: Config
    ) -> tuple[HttpRequest, AnswerReader]:
        """Write a transcription as a form."""
        is_raw = request.format == "f32"
        content = wav_of(request.audio_data) if is_raw else request.audio_data
        name = f"audio.{'wav' if is_raw else request.format}"
        if not all(char.isascii() and (char.isalnum() or char == ".") for char in name):
            raise UnsendableError(f"{request.format!r} is no format of audio")
        parts = [
            _part('name="response_format"', b"json"),
            *([_part('name="model"', config.model.encode())] if config.model else []),
            _part(f'name="file"; filename="{name}"', content),
            f"--{_BOUNDARY}--\r\n".encode(),
        ]
        kind = f"multipart/form-data; boundary={_BOUNDARY}"
        asked = HttpRequest(
            url=f"{self._root}/inference",
            headers=_headers(kind, config),
            body=b"".join(parts),
            timeout_s=config.timeout_s,
        )
        return asked, WholeReader(is_speech=True)

    def _post(self, fields: Mapping[str, object], config: Config) -> HttpRequest:
        try:
            body = msgspec.json.encode(fields)
        except (TypeError, ValueError, UnicodeEncodeError) as error:
            raise UnsendableError(f"The request cannot be written: {error}") from error
        return HttpRequest(
            url=f"{self._root}/v1/chat/completions",
            headers=_headers("application/json", config),
            body=body,
            timeout_s=config.timeout_s,
        )


def _headers(kind: str, config: Config) -> Sequence[tuple[str, str]]:
    try:
        who = auth_headers(config.token)
    except ValueError as error:
        raise UnsendableError(str(error)) from error
    told = [(name.decode(), value.decode()) for name, value in who]
    return [("content-type", kind), *told]


def _fields(
    request: ChatRequest | StructuredRequest, config: Config, *, stream: bool
) -> dict[str, object]:
    fields: dict[str, object] = {"model": config.model} if config.model else {}
    fields["messages"] = [
        {"role": each.role, "content": each.content} for each in request.messages
    ]
    fields["stream"] = stream
    fields["temperature"] = temperature_of(request, config)
    fields["max_tokens"] = request.max_tokens
    if config.seed is not None:
        fields["seed"] = config.seed
    return fields


def raw_schema(request: StructuredRequest) -> Raw:
    """Return the schema of a request.

    Raises:
        UnsendableError: it is no JSON.
    """
    try:
        return Raw(msgspec.json.format(request.json_schema.encode(), indent=-1))
    except (*DECODE_FAILURES, UnicodeEncodeError) as error:
        raise UnsendableError(f"The schema is no JSON: {error}") from error


def _part(disposition: str, content: bytes) -> bytes:
    head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return b"".join((head.encode(), content, b"\r\n"))


# --- answers ----------------------------------------------------------------------------


class _AnswerFacts:
    """What an answer has told besides its text."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._usage = _Usage()
        self.is_whole = False
        """Whether the end of the answer has come."""
        self.was_cancelled = False
        """Never known here."""

    @property
    def was_cut(self) -> bool:
        """Whether ``max_tokens`` ended the answer."""
        return self._reason == "length"

    @property
    def n_output(self) -> int | None:
        """Tokens of the answer, where they are told."""
        return self._usage.completion_tokens

    @property
    def n_total(self) -> int | None:
        """Tokens of the prompt and the answer, where they are told."""
        return self._usage.total_tokens


class EventReader(_AnswerFacts):
    """Reads a stream of events.

    Bounds: ``LINE_MAX_BYTES`` of an event that has not come to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines = LineSplitter(LINE_MAX_BYTES)
        self._has_event = False

    def feed(self, data: bytes) -> Sequence[str]:
        """Add bytes; return the texts that have come.

        Raises:
            AnswerError: an event is an error, or cannot be read.
        """
        self._lines.feed(data)
        texts: list[str] = []
        try:
            while (line := self._lines.next_frame()) is not None:
                event = line.strip()
                if event.startswith(_DATA) and not self.is_whole:
                    texts += self._read(event.removeprefix(_DATA).strip())
        except FrameTooLargeError as error:
            raise AnswerError(UNREADABLE) from error
        return texts

    def _read(self, event: bytes) -> Sequence[str]:
        if event == _DONE:
            self.is_whole = True
            return ()
        found = read_event(event)
        self._has_event = True
        self._usage = found.usage or self._usage
        for choice in found.choices:
            self._reason = choice.finish_reason or self._reason
        pieces = [each.delta or each.message or _Piece() for each in found.choices]
        return [each.content for each in pieces if each.content]

    def end(self, response: HttpResponse) -> Sequence[str]:
        """End the answer.

        Raises:
            AnswerError: it was an error, or no stream of events.
        """
        check_status(response)
        if not self._has_event:
            raise AnswerError(UNREADABLE)
        self.is_whole = self.is_whole or self._reason is not None
        return ()


class WholeReader(_AnswerFacts):
    """Reads an answer that is one JSON object.

    Args:
        is_speech: whether it is whisper.cpp's.
    """

    def __init__(self, *, is_speech: bool = False) -> None:
        super().__init__()
        self._is_speech = is_speech

    def feed(self, _: bytes) -> Sequence[str]:
        """Return nothing: the answer comes at its end."""
        return ()

    def end(self, response: HttpResponse) -> Sequence[str]:
        """Read the answer; return its text.

        Raises:
            AnswerError: it is an error, or cannot be read.
        """
        check_status(response)
        found = read_event(response.body)
        self.is_whole = True
        if self._is_speech:
            if found.text is None:
                raise AnswerError(UNREADABLE)
            return [found.text.strip()]
        if not found.choices or (said := found.choices[0].message) is None:
            raise AnswerError(UNREADABLE)
        self._reason = found.choices[0].finish_reason
        self._usage = found.usage or self._usage
        return [said.content or ""]


def read_event(data: bytes) -> _Event:
    """Decode an event, or an answer that is whole.

    Raises:
        AnswerError: it is an error, or cannot be read.
    """
    try:
        found = _EVENT.decode(data)
    except DECODE_FAILURES as error:
        raise AnswerError(UNREADABLE) from error
    match found.error:
        case None:
            return found
        case str(text):
            raise AnswerError(text)
        case _Failure(message=text, code=code, type=kind):
            raise AnswerError(text or UNREADABLE, str(code or kind or ""))


def check_status(response: HttpResponse) -> None:
    """Check that a server has answered.

    Raises:
        AnswerError: it has refused; with its own words, if it has some.
    """
    if response.status == _OK:
        return
    try:
        read_event(response.body)
    except AnswerError as error:
        if error.message != UNREADABLE:
            raise
    raise AnswerError(f"HTTP {response.status}", str(response.status))
