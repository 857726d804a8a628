"""The engine of the contract: requests become answers of a daemon."""

import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from inferd.client.closing import ClosedOnLeaving
from inferd.client.contract.request import ContractRequest
from inferd.client.contract.response import (
    NO_TOKEN,
    CompletionReason,
    ContractResponse,
    ResponseChunk,
)
from inferd.client.contract.sampling import SamplingParams
from inferd.client.core.answer import (
    Event,
    FinalAnswer,
    ProgressEvent,
    TextEvent,
)
from inferd.client.core.conversation import ChatOptions, Prompt
from inferd.client.core.failures import ClientError
from inferd.client.library.blocking import Client

MAX_THREADS: Final = 16
"""Answers of ``generate_async`` at once, as many as a client has connections."""
MAX_WAITING: Final = 10_000
"""Requests of ``generate_async`` that run or wait: each keeps its prompt in memory."""
_REASONS: Final[dict[str, CompletionReason]] = {
    "end_turn": "end_of_sequence",
    "max_tokens": "max_tokens",
    "cancelled": "user_cancelled",
}


class InferenceEngine(ClosedOnLeaving):
    """An engine whose answers a daemon generates.

    Errors of a generation are in its response, with what was generated before. A model that
    answers must be local: remote engines tell no ids of tokens.

    Args:
        client: that it asks by; the caller closes it. By default one of its own.

    Ownership: threads share it; ``close`` it, or use it in a ``with`` block: requests in
    progress are cancelled then.
    """

    def __init__(self, client: Client | None = None) -> None:
        self._owns_client = client is None
        self._client = Client() if client is None else client
        self._threads = ThreadPoolExecutor(MAX_THREADS, "inferd-contract")
        self._places = threading.BoundedSemaphore(MAX_WAITING)
        self._lock = threading.Lock()
        self._running: set[ContractRequest] = set()

    def close(self) -> None:
        """Cancel what is in progress and wait for its end."""
        with self._lock:
            running = [*self._running]
        for request in running:
            request.cancel()
        self._threads.shutdown()
        if self._owns_client:
            self._client.close()

    def generate(self, request: ContractRequest) -> ContractResponse:
        """Have a request answered; return when the answer has ended.

        Raises:
            RuntimeError: it was submitted before.
        """
        request.submit()
        return self._answer_all(request)

    def generate_async(self, request: ContractRequest) -> "Future[ContractResponse]":
        """Have a request answered in a thread of this engine.

        Cancel it by ``request.cancel``; the future's own ``cancel`` only works before it runs.

        Raises:
            RuntimeError: it was submitted before, this is closed, or 10,000 requests wait.
        """
        if not self._places.acquire(blocking=False):
            raise RuntimeError(f"{MAX_WAITING} requests wait, more are not allowed")
        try:
            request.submit()
            with self._lock:
                self._running.add(request)
            future = self._threads.submit(self._answer_all, request)
        except BaseException:
            self._forget(request)
            raise

        def ended(done: "Future[ContractResponse]") -> None:
            if done.cancelled():
                request.finish()
            self._forget(request)

        future.add_done_callback(ended)
        return future

    def stream(self, request: ContractRequest) -> Iterator[ResponseChunk]:
        """Have a request answered; yield its parts. Leaving early cancels it.

        Raises:
            RuntimeError: it was submitted before.
        """
        request.submit()
        yield from self._answer(request, ContractResponse(request.get_id()))

    def _answer_all(self, request: ContractRequest) -> ContractResponse:
        response = ContractResponse(request.get_id())
        for _ in self._answer(request, response):
            pass
        return response

    def _forget(self, request: ContractRequest) -> None:
        with self._lock:
            self._running.discard(request)
        self._places.release()

    def _answer(
        self, request: ContractRequest, response: ContractResponse
    ) -> Iterator[ResponseChunk]:
        """Yield the parts of an answer, while request and response are filled in."""
        end_token = NO_TOKEN
        calls_back = True
        try:
            if request.is_cancelled():
                response.finish("user_cancelled")
            else:
                end_token = yield from self._ask(request, response)
        except GeneratorExit:
            response.finish("user_cancelled")
            raise
        except ClientError as error:
            response.set_error(str(error))
        except Exception as error:  # noqa: BLE001  # of the caller's own callback
            response.set_error(f"the token callback failed: {error!r}")
            calls_back = False
        finally:
            response.finish()
            request.finish(response.get_error_message())
        if calls_back:
            _notify_end(end_token, request, response)
        yield ResponseChunk(request.get_id(), end_token, "", finished=True)

    def _ask(
        self, request: ContractRequest, response: ContractResponse
    ) -> Generator[ResponseChunk, None, int]:
        """Ask the daemon; return the token that ended the answer."""
        stream = self._client.stream(prompt_of(request), **options_of(request))
        with stream, request.ended_by(stream.cancel):
            for event in stream.events():
                if request.is_cancelled():  # perhaps before it was sent
                    stream.cancel()
                yield from _read(event, request, response)
            answer = stream.final()
        told = response.get_output_token_count()
        yield from _add(answer.token_ids[told:], "", request, response)
        _conclude(answer, request, response)
        return NO_TOKEN if answer.end_token_id is None else answer.end_token_id


def _notify_end(
    token: int, request: ContractRequest, response: ContractResponse
) -> None:
    """Tell the callback that the answer has ended; its failure is the response's error."""
    try:
        request.notify_token(token, is_finished=True)
    except Exception as error:  # noqa: BLE001  # of the caller's own callback
        response.set_error(f"the token callback failed: {error!r}")


def prompt_of(request: ContractRequest) -> Prompt:
    """Return the prompt of a request: its tokens, if it has any."""
    return list(request.get_input_tokens()) or request.get_prompt()


def options_of(request: ContractRequest) -> ChatOptions:
    """Return the options of a request in the protocol's words."""
    options = ChatOptions(
        token_ids=True,
        progress=True,  # a cancelled request is noticed at the first frame, even in the queue
        max_tokens=request.get_max_tokens(),
        min_tokens=request.get_min_tokens(),
        priority=request.get_priority(),
        prefill_only=request.allows_prefill_only(),
        stop_token_ids=list(request.get_stop_tokens()),
        cache=_cache_use(request),
    )
    if text := request.get_stop_string():
        options["stop"] = [text]
    if n_alternatives := request.get_top_logprobs():
        options["logprobs"] = n_alternatives
    if model := request.get_model():
        options["model"] = model
    return options | _sampling_of(request.get_sampling_params())


def _sampling_of(params: SamplingParams) -> ChatOptions:
    options = ChatOptions()
    if params.temperature is not None:
        options["temperature"] = params.temperature
    if params.top_k is not None:
        options["top_k"] = params.top_k
    if params.top_p is not None:
        options["top_p"] = params.top_p
    if params.seed:
        options["seed"] = params.seed
    if params.repetition_penalty:
        options["repeat_penalty"] = params.repetition_penalty
    return options


def _cache_use(request: ContractRequest) -> str:
    if not request.should_reuse_cache():
        return "off"
    return "discard" if request.should_free_cache_on_finish() else "auto"


def _read(
    event: Event, request: ContractRequest, response: ContractResponse
) -> Iterator[ResponseChunk]:
    """Fill in a part of the answer."""
    if isinstance(event, ProgressEvent):
        return
    text = event.text if isinstance(event, TextEvent) else ""
    response.append_text(text)
    yield from _add(event.token_ids, text, request, response)


def _add(
    tokens: Sequence[int],
    text: str,
    request: ContractRequest,
    response: ContractResponse,
) -> Iterator[ResponseChunk]:
    """Tell tokens, and with the last the text that is complete then."""
    request_id = request.get_id()
    for token in tokens:
        response.add_token(token)
        request.add_generated_token(token)
        request.notify_token(token, is_finished=False)
    for token in tokens[:-1]:
        yield ResponseChunk(request_id, token, "", finished=False)
    if tokens or text:
        last = tokens[-1] if tokens else NO_TOKEN
        yield ResponseChunk(request_id, last, text, finished=False)


def _conclude(
    answer: FinalAnswer, request: ContractRequest, response: ContractResponse
) -> None:
    """Fill in what is known at the end."""
    response.set_input_token_count(answer.usage.input_tokens)
    response.set_logprobs([each.logprob for each in answer.logprobs])
    for each in answer.logprobs:
        response.add_top_k_for_token(
            [(other.id, other.logprob) for other in each.top_logprobs]
        )
    response.finish(_reason(answer, request))


def _reason(answer: FinalAnswer, request: ContractRequest) -> CompletionReason:
    if request.allows_prefill_only() and answer.stop_reason != "cancelled":
        return "unknown"
    if answer.stop_token_id is not None:
        return "stop_token"
    if answer.stop_sequence is not None:
        return "stop_string"
    return _REASONS.get(answer.stop_reason, "unknown")
