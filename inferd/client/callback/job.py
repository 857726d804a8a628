"""One request, in a thread of its own: sent, read, and told."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from inferd.client.callback.daemon_dialect import LateAnswerError
from inferd.client.callback.dialect import AnswerReader
from inferd.client.callback.failures import (
    INTERRUPTED,
    NO_MATCH,
    UNREADABLE,
    AnswerError,
    failure_of,
)
from inferd.client.callback.http_client import (
    Cancellation,
    HttpClient,
    HttpRequest,
    HttpResponse,
)
from inferd.client.callback.openai_dialect import DECODE_FAILURES
from inferd.client.callback.schema_check import matches


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a request has ended."""

    text: str
    """What has come, whether or not it is all."""
    failure: AnswerError | None = None
    was_cancelled: bool = False
    document: object = None
    """The JSON of a structured answer that satisfies its schema."""
    n_pieces: int = 0
    first_at: float | None = None
    """When the first text came, on the clock of ``monotonic``."""
    ended_at: float
    n_output: int | None = None
    n_total: int | None = None

    @property
    def n_generated(self) -> int:
        """Pieces of a stream; tokens of an answer that came whole, if they were told."""
        return self.n_pieces if self.n_output is None else self.n_output


@dataclass
class Job:
    """A request in progress.

    Args:
        http: carries it.
        write: makes the request; it may take a while, as decoding audio does.
        ends_at: when it has timed out, on the clock of ``monotonic``.
        is_streamed: whether texts are told as they come.
        schema: that the answer must satisfy; ``None`` for any text.
        on_text: is told each text.
    """

    http: HttpClient
    write: Callable[[], tuple[HttpRequest, AnswerReader]]
    ends_at: float
    is_streamed: bool = False
    schema: str | None = None
    on_text: Callable[[str], None] | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _texts: list[str] = field(default_factory=list)
    _first_at: float | None = None
    _failure: AnswerError | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the program has cancelled it, and not the end of the answer."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Cancel the request, from any thread."""
        self._cancelled.set()
        self.cancellation.cancel()

    def run(self) -> Outcome:
        """Have the request answered; nothing is raised."""
        reader: AnswerReader | None = None
        document: object = None
        try:
            request, reader = self.write()
            self._answer(request, reader)
            if not self.is_cancelled and not reader.was_cancelled:
                document = self._checked(reader)
        except Exception as error:  # noqa: BLE001  # told by the callback, as all failures
            self._failure = self._failure or failure_of(error)
        was_cancelled = self.is_cancelled or bool(reader and reader.was_cancelled)
        return Outcome(
            text="".join(self._texts),
            failure=None if was_cancelled else self._failure,
            was_cancelled=was_cancelled,
            document=document,
            n_pieces=len(self._texts),
            first_at=self._first_at,
            ended_at=monotonic(),
            n_output=None if reader is None or self.is_streamed else reader.n_output,
            n_total=None if reader is None else reader.n_total,
        )

    def _answer(self, request: HttpRequest, reader: AnswerReader) -> None:
        """Send the request and read its answer.

        Raises:
            AnswerError: it failed.
            OSError: it could not be sent, or not read to its end.
        """
        if self.is_cancelled:
            return
        is_framed = request.url.startswith("unix:")
        if not (self.is_streamed or is_framed):
            response = self.http.send(request, self.cancellation)
        else:
            response = self.http.send_streaming(
                request, lambda data: self._take(reader, data), self.cancellation
            )
        if self._failure is not None:
            raise self._failure
        if self._cancelled.is_set():
            return
        self._end(reader, response)

    def _end(self, reader: AnswerReader, response: HttpResponse) -> None:
        for text in reader.end(response):
            self._tell(text)
        if not reader.is_whole:
            raise AnswerError(INTERRUPTED)

    def _take(self, reader: AnswerReader, data: bytes) -> None:
        """Read bytes that have come; stop the transport once there is enough."""
        try:
            for text in reader.feed(data):
                self._tell(text)
        except LateAnswerError as error:
            for text in error.texts:
                self._tell(text)
            self._failure = error
        except AnswerError as error:
            self._failure = error
        if self._failure is None and not reader.is_whole and monotonic() > self.ends_at:
            self._failure = failure_of(TimeoutError())
        if self._failure is not None or reader.is_whole:
            self.cancellation.cancel()

    def _tell(self, text: str) -> None:
        if self.is_cancelled:
            return
        if self._first_at is None:
            self._first_at = monotonic()
        self._texts.append(text)
        if self.on_text is not None:
            self.on_text(text)

    def _checked(self, reader: AnswerReader) -> object:
        """Return the JSON of a structured answer.

        Raises:
            AnswerError: it is none, or does not satisfy the schema.
        """
        if self.schema is None:
            return None
        if reader.was_cut:
            raise AnswerError(NO_MATCH)
        try:
            document = msgspec.json.decode("".join(self._texts))
        except DECODE_FAILURES as error:
            raise AnswerError(UNREADABLE) from error
        if not matches(document, msgspec.json.decode(self.schema)):
            raise AnswerError(NO_MATCH)
        return document
