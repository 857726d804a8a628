"""Messages between daemon, workers and preparers as bytes: msgpack behind its length.

The length has four bytes, little endian.
"""

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from inferd.ipc import FromWorker, Prepare, ToWorker
from inferd.job import EmbedJob, GenerateJob, Job, Turn
from inferd.limits import MAX_IPC_MESSAGE_BYTES
from inferd.preparing import FromPreparer, ToPreparer, Write

LENGTH_BYTES = 4


class BrokenLinkError(Exception):
    """The other side sent what is no message."""


_ENCODER = msgspec.msgpack.Encoder()
_NIL = Raw(b"\xc0")
_TURNS: msgspec.msgpack.Decoder[list[Turn]] = msgspec.msgpack.Decoder(list[Turn])
_TEXTS: msgspec.msgpack.Decoder[list[str]] = msgspec.msgpack.Decoder(list[str])
_TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_TO_PREPARER: msgspec.msgpack.Decoder[ToPreparer] = msgspec.msgpack.Decoder(ToPreparer)
_FROM_PREPARER: msgspec.msgpack.Decoder[FromPreparer] = msgspec.msgpack.Decoder(
    FromPreparer
)


def encode(message: ToWorker | FromWorker | ToPreparer | FromPreparer) -> bytes:
    """Write one message with its length."""
    buffer = bytearray(LENGTH_BYTES)
    _ENCODER.encode_into(message, buffer, LENGTH_BYTES)
    buffer[:LENGTH_BYTES] = _length(len(buffer) - LENGTH_BYTES)
    return bytes(buffer)


def _length(n_bytes: int) -> bytes:
    if n_bytes > MAX_IPC_MESSAGE_BYTES:
        raise BrokenLinkError(f"a message of {n_bytes} bytes is over the cap")
    return n_bytes.to_bytes(LENGTH_BYTES, "little")


def content_of(job: GenerateJob | EmbedJob) -> bytes:
    """Write what is large of a job, for its ``content``."""
    return _ENCODER.encode(job.turns if isinstance(job, GenerateJob) else job.texts)


def _whole(job: Job, content: Raw) -> Job:
    match job:
        case GenerateJob():
            return replace(job, turns=_TURNS.decode(content))
        case EmbedJob():
            return replace(job, texts=_TEXTS.decode(content))
        case _:
            raise BrokenLinkError("content for a job that has none")


def encode_in_parts(message: ToWorker | ToPreparer) -> list[bytes | memoryview]:
    """Write one message with its length; what a job lacks is not copied."""
    match message:
        case (
            Prepare(job=GenerateJob(content=Raw() as content) as job)
            | Prepare(job=EmbedJob(content=Raw() as content) as job)
            | Write(job=GenerateJob(content=Raw() as content) as job)
        ):
            view = memoryview(content)
            light = replace(message, job=replace(job, content=UNSET), content=_NIL)
            head = bytearray(LENGTH_BYTES)
            _ENCODER.encode_into(light, head, LENGTH_BYTES)
            del head[-1:]  # what stands for the content
            head[:LENGTH_BYTES] = _length(len(head) - LENGTH_BYTES + len(view))
            return [bytes(head), view]
        case _:
            return [encode(message)]


def decode_to_worker(payload: bytes | bytearray) -> ToWorker:
    """Read a message from the daemon; raises ``BrokenLinkError`` if it is none."""
    try:
        message = _TO_WORKER.decode(payload)
        if isinstance(message, Prepare) and isinstance(message.content, Raw):
            whole = _whole(message.job, message.content)
            return replace(message, job=whole, content=UNSET)
        return message  # noqa: TRY300  # one place for all that may fail
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenLinkError(str(error)) from error


def decode_from_worker(payload: bytes | bytearray) -> FromWorker:
    """Read a message from a worker; raises ``BrokenLinkError`` if it is none."""
    try:
        return _FROM_WORKER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenLinkError(str(error)) from error


def decode_to_preparer(payload: bytes | bytearray) -> ToPreparer:
    """Read a message from the daemon; raises ``BrokenLinkError`` if it is none."""
    try:
        message = _TO_PREPARER.decode(payload)
        if isinstance(message, Write) and isinstance(message.content, Raw):
            job = replace(message.job, turns=_TURNS.decode(message.content))
            return replace(message, job=job, content=UNSET)
        return message  # noqa: TRY300  # one place for all that may fail
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenLinkError(str(error)) from error


def decode_from_preparer(payload: bytes | bytearray) -> FromPreparer:
    """Read a message from a preparer; raises ``BrokenLinkError`` if it is none."""
    try:
        return _FROM_PREPARER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenLinkError(str(error)) from error


class MessageSplitter:
    """Cuts a stream of bytes into payloads.

    Bounds:
        Memory: one message of ``MAX_IPC_MESSAGE_BYTES`` and what one ``feed`` brings.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._begin = 0  # of what was not taken yet

    def feed(self, data: bytes | bytearray) -> None:
        """Add what was read."""
        del self._buffer[: self._begin]
        self._begin = 0
        self._buffer += data

    @property
    def is_empty(self) -> bool:
        """Whether all that was fed has been taken."""
        return self._begin == len(self._buffer)

    def next_payload(self) -> bytearray | None:
        """Take the next payload, or ``None`` if more is needed.

        Raises:
            BrokenLinkError: it says that it is longer than any message may be.
        """
        begin = self._begin + LENGTH_BYTES
        if len(self._buffer) < begin:
            return None
        n_bytes = int.from_bytes(self._buffer[self._begin : begin], "little")
        if n_bytes > MAX_IPC_MESSAGE_BYTES:
            raise BrokenLinkError(f"a message of {n_bytes} bytes is announced")
        end = begin + n_bytes
        if len(self._buffer) < end:
            return None
        self._begin = end
        return self._buffer[begin:end]
