"""Encoding of messages between daemon, workers and preparers: length-prefixed msgpack.

The length has four bytes, little endian.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from inferd.backend.job import EmbedJob, GenerateJob, Job, Turn
from inferd.config.settings import BackendSettings
from inferd.ipc.preparer import FromPreparer, Render, ToPreparer
from inferd.ipc.worker import (
    FromWorker,
    Prepare,
    ReceivedByWorker,
    ReceivedLoad,
    ToWorker,
)
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES

LENGTH_BYTES = 4

S = TypeVar("S", bound=BackendSettings)


class MalformedMessageError(Exception):
    """The other side sent bytes that are no message."""


_ENCODER = msgspec.msgpack.Encoder()
_NIL = Raw(b"\xc0")
_TURNS: msgspec.msgpack.Decoder[list[Turn]] = msgspec.msgpack.Decoder(list[Turn])
_TEXTS: msgspec.msgpack.Decoder[list[str]] = msgspec.msgpack.Decoder(list[str])
_TOKENS: msgspec.msgpack.Decoder[list[list[int]]] = msgspec.msgpack.Decoder(
    list[list[int]]
)
_PROMPT_TOKENS: msgspec.msgpack.Decoder[list[int]] = msgspec.msgpack.Decoder(list[int])
_IN_WORKER: msgspec.msgpack.Decoder[ReceivedByWorker] = msgspec.msgpack.Decoder(
    ReceivedByWorker
)
_FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_TO_PREPARER: msgspec.msgpack.Decoder[ToPreparer] = msgspec.msgpack.Decoder(ToPreparer)
_FROM_PREPARER: msgspec.msgpack.Decoder[FromPreparer] = msgspec.msgpack.Decoder(
    FromPreparer
)


def encode(message: ToWorker | FromWorker | ToPreparer | FromPreparer) -> bytes:
    """Encode one message with its length."""
    payload = _ENCODER.encode(message)
    return _length(len(payload)) + payload


def _length(n_bytes: int) -> bytes:
    if n_bytes > MAX_IPC_MESSAGE_BYTES:
        raise MalformedMessageError(f"a message of {n_bytes} bytes is over the cap")
    return n_bytes.to_bytes(LENGTH_BYTES, "little")


def encode_content(job: GenerateJob | EmbedJob) -> bytes:
    """Encode the large part of a job, for its ``content``."""
    match job:
        case GenerateJob():
            return _ENCODER.encode(job.input_tokens or job.turns)
        case EmbedJob():
            return _ENCODER.encode(job.tokens or job.texts)


def _with_content(job: Job, content: Raw) -> Job:
    match job:
        case GenerateJob():
            return _with_prompt(job, content)
        case EmbedJob(tokens=[]):
            return replace(job, texts=_TEXTS.decode(content))
        case EmbedJob():
            return replace(job, tokens=_TOKENS.decode(content))
        case _:
            raise MalformedMessageError("content for a job that has none")


def _with_prompt(job: GenerateJob, content: Raw) -> GenerateJob:
    if job.input_tokens:
        return replace(job, input_tokens=_PROMPT_TOKENS.decode(content))
    return replace(job, turns=_TURNS.decode(content))


def encode_in_parts(message: ToWorker | ToPreparer) -> list[bytes | memoryview]:
    """Encode one message with its length; a job's ``content`` is not copied."""
    match message:
        case (
            Prepare(job=GenerateJob(content=Raw() as content) as job)
            | Prepare(job=EmbedJob(content=Raw() as content) as job)
            | Render(job=GenerateJob(content=Raw() as content) as job)
        ):
            view = memoryview(content)
            placeholder = replace(
                message, job=replace(job, content=UNSET), content=_NIL
            )
            head = bytearray(LENGTH_BYTES)
            _ENCODER.encode_into(placeholder, head, LENGTH_BYTES)
            del head[-1:]  # the placeholder for the content
            head[:LENGTH_BYTES] = _length(len(head) - LENGTH_BYTES + len(view))
            return [bytes(head), view]
        case _:
            return [encode(message)]


def decode_to_worker(payload: bytes | bytearray) -> ReceivedByWorker:
    """Decode a message from the daemon; raises ``MalformedMessageError`` if it is none."""
    try:
        message = _IN_WORKER.decode(payload)
        if isinstance(message, Prepare) and isinstance(message.content, Raw):
            job = _with_content(message.job, message.content)
            return replace(message, job=job, content=UNSET)
        return message  # noqa: TRY300  # one handler for all errors
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessageError(str(error)) from error


def decode_settings(load: ReceivedLoad, settings: type[S]) -> S:
    """Decode the settings of a kind; raises ``MalformedMessageError`` if they are others."""
    try:
        return msgspec.msgpack.decode(load.settings, type=settings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessageError(str(error)) from error


def decode_from_worker(payload: bytes | bytearray) -> FromWorker:
    """Decode a message from a worker; raises ``MalformedMessageError`` if it is none."""
    try:
        return _FROM_WORKER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessageError(str(error)) from error


def decode_to_preparer(payload: bytes | bytearray) -> ToPreparer:
    """Decode a message from the daemon; raises ``MalformedMessageError`` if it is none."""
    try:
        message = _TO_PREPARER.decode(payload)
        if isinstance(message, Render) and isinstance(message.content, Raw):
            job = _with_prompt(message.job, message.content)
            return replace(message, job=job, content=UNSET)
        return message  # noqa: TRY300  # one handler for all errors
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessageError(str(error)) from error


def decode_from_preparer(payload: bytes | bytearray) -> FromPreparer:
    """Decode a message from a preparer; raises ``MalformedMessageError`` if it is none."""
    try:
        return _FROM_PREPARER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessageError(str(error)) from error


class MessageSplitter:
    """Splitter of a byte stream into payloads.

    Bounds:
        Memory: one message of ``MAX_IPC_MESSAGE_BYTES`` and the data of one ``feed``.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begin = 0  # of the bytes that were not taken yet

    def feed(self, data: bytes | bytearray) -> None:
        """Add bytes that were read."""
        del self._buffer[: self._begin]
        self._begin = 0
        self._buffer += data

    @property
    def is_empty(self) -> bool:
        """Whether all bytes have been taken."""
        return self._begin == len(self._buffer)

    def next_payload(self) -> bytearray | None:
        """Take the next payload, or ``None`` if more bytes are needed.

        Raises:
            MalformedMessageError: its length exceeds ``MAX_IPC_MESSAGE_BYTES``.
        """
        begin = self._begin + LENGTH_BYTES
        if len(self._buffer) < begin:
            return None
        n_bytes = int.from_bytes(self._buffer[self._begin : begin], "little")
        if n_bytes > MAX_IPC_MESSAGE_BYTES:
            raise MalformedMessageError(f"a message of {n_bytes} bytes is announced")
        end = begin + n_bytes
        if len(self._buffer) < end:
            return None
        self._begin = end
        return self._buffer[begin:end]
