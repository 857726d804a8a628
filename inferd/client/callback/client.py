"""The client that calls back."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from os import PathLike
from time import monotonic
from typing import Final

from inferd.client.callback.configuration import Config
from inferd.client.callback.daemon_dialect import DaemonDialect
from inferd.client.callback.dialect import AnswerReader, Dialect
from inferd.client.callback.due_calls import DueCalls
from inferd.client.callback.failures import CANCELLED, TOO_MANY, AnswerError
from inferd.client.callback.http_client import HttpClient, HttpRequest
from inferd.client.callback.job import Job, Outcome
from inferd.client.callback.openai_dialect import OpenAiDialect
from inferd.client.callback.requests import (
    ChatRequest,
    StructuredRequest,
    TranscriptionRequest,
)
from inferd.client.callback.responses import (
    ChatResponse,
    RequestHandle,
    RequestMetrics,
    StructuredResponse,
    TokenUsage,
    TranscriptionResponse,
)
from inferd.client.callback.result_queue import ResultQueue
from inferd.client.callback.sockets import SocketClient
from inferd.client.closing import ClosedOnLeaving

MAX_IN_FLIGHT: Final = 16
"""Requests of one client at once, each with a thread and a connection; a further one fails by
its callback."""
MS_PER_S: Final = 1000

OnToken = Callable[[str], None]
ReadResult = Callable[[RequestHandle, object], object]
"""Makes a result of a structured answer's JSON, in a thread of the client's; ``None`` for none."""


def _as_it_is(_: RequestHandle, document: object) -> object:
    return document


@dataclass(frozen=True)
class _Pending:
    """A request whose last callback is still due."""

    job: Job
    tell: Callable[[Outcome], None]
    """Calls the last callback."""
    started_at: float
    is_measured: bool


class InferenceClient(ClosedOnLeaving):
    """Has requests answered, and calls back in ``poll``; no call waits or raises a failure.

    Args:
        directory: of the daemon's sockets; ``None`` for the default places.
        url: of a server with OpenAI's API, and whisper.cpp's for speech, in place of a
            daemon: ``http://127.0.0.1:8080``, or one with ``https``.
        config: what holds for each request, until ``configure`` changes it.
        http_client: carries the requests, in tests of a program; ``None`` for sockets or HTTP.
        read_result: makes what ``read_result`` returns of a structured answer; ``None``
            leaves the JSON as it is.
        calls_back: whether a thread of the client's calls back, without ``poll``.

    Raises:
        ValueError: the address is none, or both it and a directory are given.

    Bounds: ``MAX_IN_FLIGHT`` requests, ``UNPOLLED_MAX_CHARS`` that nobody polls.

    Ownership: threads may share it, callbacks may call it; ``close`` it, or use it in a
    ``with`` block: requests in flight are cancelled then, and nothing is called any more.
    """

    def __init__(  # noqa: PLR0913  # two places, and four of the program's own
        self,
        directory: str | PathLike[str] | None = None,
        *,
        url: str | None = None,
        config: Config | None = None,
        http_client: HttpClient | None = None,
        read_result: ReadResult | None = None,
        calls_back: bool = False,
    ) -> None:
        if directory is not None and url is not None:
            raise ValueError("directory and url: one of them, not both")
        self._http = http_client or _http_client(directory, url)
        self._dialect: Dialect = DaemonDialect() if url is None else OpenAiDialect(url)
        self._config = config or Config()
        self._read = read_result or _as_it_is
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._pending: dict[RequestHandle, _Pending] = {}
        self._due = DueCalls()
        self._results = ResultQueue()
        self._last: RequestHandle = 0
        self._metrics = RequestMetrics()
        self._n_tokens = 0
        self._is_closed = False
        if calls_back:
            threading.Thread(target=self._call_back, daemon=True).start()

    def close(self) -> None:
        """Cancel what is in flight; nothing is called any more."""
        with self._lock:
            self._is_closed = True
            pending = [*self._pending.values()]
            self._pending.clear()
        self._due.close()
        for each in pending:
            each.job.cancel()

    # --- requests -------------------------------------------------------------------------

    def chat(
        self,
        request: ChatRequest,
        on_token: OnToken,
        on_complete: Callable[[ChatResponse], None],
    ) -> RequestHandle:
        """Have a conversation answered with text.

        Args:
            request: the conversation.
            on_token: called with each text as it comes.
            on_complete: called once, after it, whatever happens.
        """
        write = partial(self._dialect.chat, request, self._config)

        def tell(outcome: Outcome) -> None:
            failure = outcome.failure
            on_complete(
                ChatResponse(
                    full_response=outcome.text,
                    cancelled=outcome.was_cancelled,
                    error=failure is not None,
                    error_message=failure.message if failure else "",
                    error_code=failure.code if failure else "",
                )
            )

        return self._start(write, tell, on_token=on_token)

    def complete(
        self,
        request: StructuredRequest,
        on_complete: Callable[[StructuredResponse], None],
    ) -> RequestHandle:
        """Have a conversation answered with JSON that satisfies a schema.

        Args:
            request: the conversation and the schema.
            on_complete: called once with the whole answer, whatever happens.
        """
        write = partial(self._dialect.complete, request, self._config)

        def tell(outcome: Outcome) -> None:
            failure = outcome.failure
            on_complete(
                StructuredResponse(
                    raw_json=outcome.text,
                    cancelled=outcome.was_cancelled,
                    error=failure is not None,
                    error_message=failure.message if failure else "",
                    error_code=failure.code if failure else "",
                )
            )

        return self._start(write, tell, schema=request.json_schema)

    def transcribe(
        self,
        request: TranscriptionRequest,
        on_complete: Callable[[TranscriptionResponse], None],
    ) -> RequestHandle:
        """Have speech written down; it is not in the metrics.

        Args:
            request: the recording.
            on_complete: called once, whatever happens.
        """
        write = partial(self._dialect.transcribe, request, self._config)

        def tell(outcome: Outcome) -> None:
            failure = outcome.failure
            if outcome.was_cancelled:
                failure = AnswerError(CANCELLED)
            on_complete(
                TranscriptionResponse(
                    text=outcome.text.strip(),
                    error=failure is not None,
                    error_message=failure.message if failure else "",
                    error_code=failure.code if failure else "",
                )
            )

        return self._start(write, tell, is_measured=False)

    def cancel(self, handle: RequestHandle) -> None:
        """Cancel a request; its last callback is told. One that has ended is left alone."""
        with self._lock:
            pending = self._pending.get(handle)
        if pending is not None:
            pending.job.cancel()

    def is_in_flight(self, handle: RequestHandle) -> bool:
        """Tell whether the last callback of a request has not been called yet."""
        with self._lock:
            return handle in self._pending

    def configure(self, config: Config) -> None:
        """Set what holds for each request from now on."""
        self._config = config

    # --- what is told ---------------------------------------------------------------------

    def poll(self) -> int:
        """Call what is due, in this thread; never wait.

        What a callback raises leaves ``poll``; what was due behind it is called by the next
        one.

        Returns:
            How many calls were made.
        """
        n_calls = 0
        while (call := self._due.take()) is not None:
            n_calls += 1
            call()
        return n_calls

    def last_request_metrics(self) -> RequestMetrics:
        """Return the metrics of the last chat or structured request; zero until it ends."""
        with self._lock:
            return self._metrics

    def token_usage(self) -> TokenUsage:
        """Return what all requests of this client have used."""
        with self._lock:
            return TokenUsage(total_tokens=self._n_tokens)

    def read_result(self) -> object | None:
        """Take the oldest result of a structured answer; ``None`` if there is none.

        It takes no lock and allocates nothing, for a thread that plays sound. One thread
        may call it. ``RESULTS`` wait at most; see ``dropped_results``.
        """
        return self._results.read()

    @property
    def dropped_results(self) -> int:
        """Results that were left out because nobody read those before."""
        return self._results.n_dropped

    # --- in threads of the client's -------------------------------------------------------

    def _start(  # what makes a request of each of the three
        self,
        write: Callable[[], tuple[HttpRequest, AnswerReader]],
        tell: Callable[[Outcome], None],
        *,
        on_token: OnToken | None = None,
        schema: str | None = None,
        is_measured: bool = True,
    ) -> RequestHandle:
        now = monotonic()
        job = Job(
            self._http,
            write,
            now + self._config.request_timeout_s,
            is_streamed=on_token is not None,
            schema=schema,
        )
        if on_token is not None:
            job.on_text = partial(self._tell_token, job, on_token)
        with self._lock:
            handle = next(self._numbers)
            is_full = len(self._pending) >= MAX_IN_FLIGHT
            if is_measured:
                self._last, self._metrics = handle, RequestMetrics()
            if not self._is_closed:
                self._pending[handle] = _Pending(job, tell, now, is_measured)
        if is_full:
            failed = Outcome(text="", failure=AnswerError(TOO_MANY), ended_at=now)
            self._due.put(partial(self._end, handle, failed))
        else:
            run = partial(self._run, handle, job)
            threading.Thread(target=run, daemon=True, name=f"inferd-{handle}").start()
        return handle

    def _tell_token(self, job: Job, on_token: OnToken, text: str) -> None:
        def call() -> None:
            if not job.is_cancelled:
                on_token(text)

        self._due.put(call, len(text))

    def _run(self, handle: RequestHandle, job: Job) -> None:
        outcome = job.run()
        with self._lock:
            pending = self._pending.get(handle)
            if pending is not None:
                self._note(handle, pending, outcome)
        if outcome.document is not None and outcome.failure is None:
            self._keep_result(handle, outcome.document)
        self._due.put(partial(self._end, handle, outcome), len(outcome.text))

    def _note(self, handle: RequestHandle, pending: _Pending, outcome: Outcome) -> None:
        """Count a request that has ended; the caller holds the lock."""
        self._n_tokens += (
            outcome.n_generated if outcome.n_total is None else outcome.n_total
        )
        if not pending.is_measured or handle != self._last:
            return
        latency_s = outcome.ended_at - pending.started_at
        first_at = None if pending.job.schema is not None else outcome.first_at
        is_counted = outcome.failure is None and latency_s > 0
        self._metrics = RequestMetrics(
            latency_ms=latency_s * MS_PER_S,
            time_to_first_token_ms=(
                0.0 if first_at is None else (first_at - pending.started_at) * MS_PER_S
            ),
            tokens_generated=outcome.n_generated,
            tokens_per_second=outcome.n_generated / latency_s if is_counted else 0.0,
        )

    def _keep_result(self, handle: RequestHandle, document: object) -> None:
        try:
            result = self._read(handle, document)
        except Exception:  # noqa: BLE001  # a program's function; the callback has the JSON
            return
        if result is not None:
            self._results.put(result)

    def _end(self, handle: RequestHandle, outcome: Outcome) -> None:
        with self._lock:
            pending = self._pending.pop(handle, None)
        if pending is not None:
            pending.tell(outcome)

    def _call_back(self) -> None:
        while self._due.wait():
            try:
                self.poll()
            except Exception:  # noqa: BLE001  # as of any thread: reported, and the next is called
                threading.excepthook(_current_exception())


def _current_exception() -> threading.ExceptHookArgs:
    kind, error, trace = sys.exc_info()
    return threading.ExceptHookArgs((kind, error, trace, threading.current_thread()))


def _http_client(directory: str | PathLike[str] | None, url: str | None) -> HttpClient:
    if url is None:
        return SocketClient(directory)
    from inferd.client.callback.http import HttpConnections  # noqa: PLC0415  # takes 0.1 s

    return HttpConnections(url)
