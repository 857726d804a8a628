"""A request of the contract: what is asked, and how far it is."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from inferd.client.contract.sampling import SamplingParams

DEFAULT_MAX_TOKENS: Final = 1000
"""Tokens of an answer, unless the request says otherwise."""
PRIORITY_MAX: Final = 10
"""The protocol's highest priority; the lowest is its negative."""
NS_PER_S: Final = 1_000_000_000

TokenCallback = Callable[[int, bool], object]
"""Called with a token, and whether the answer is finished."""


class ContractRequest:
    """A request for one answer, which can be submitted once.

    It is configured by one thread and cannot be changed once it is submitted; ``cancel`` and
    what tells its state can then be called from any thread.

    Args:
        request_id: the caller's name for it.
        prompt: the text of a message of a user.
        input_tokens: the tokens of the whole prompt; if there are any, they are sent in place
            of the text.
        max_tokens: longest answer.
        min_tokens: tokens before which the model cannot end the answer.
    """

    def __init__(
        self,
        request_id: str,
        prompt: str = "",
        input_tokens: Sequence[int] = (),
        max_tokens: int = DEFAULT_MAX_TOKENS,
        min_tokens: int = 0,
    ) -> None:
        self._arrival_ns = time.time_ns()
        self._id = request_id
        self._prompt = prompt
        self._input_tokens = tuple(input_tokens)
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._model: str | None = None
        self._sampling = SamplingParams()
        self._stop_tokens: tuple[int, ...] = ()
        self._stop_string = ""
        self._n_logprobs = 0
        self._priority = 0
        self._allows_prefill_only = False
        self._is_streaming = False
        self._reuses_cache = True
        self._frees_cache = False
        self._token_callback: TokenCallback | None = None
        self._lock = threading.Lock()
        self._is_submitted = False
        self._generated: list[int] = []
        self._cancelled = threading.Event()
        self._finished = threading.Event()
        self._error_message = ""
        self._end_answer: Callable[[], object] | None = None

    # --- what is asked ------------------------------------------------------------------

    def get_id(self) -> str:
        """Return the caller's name for it."""
        return self._id

    def get_prompt(self) -> str:
        """Return the text of the prompt."""
        return self._prompt

    def get_input_tokens(self) -> tuple[int, ...]:
        """Return the tokens of the prompt, if the caller has tokenised it."""
        return self._input_tokens

    def get_input_token_count(self) -> int:
        """Return how many tokens the caller has tokenised the prompt to."""
        return len(self._input_tokens)

    def get_max_tokens(self) -> int:
        """Return the longest answer in tokens."""
        return self._max_tokens

    def get_min_tokens(self) -> int:
        """Return the tokens before which the model cannot end the answer."""
        return self._min_tokens

    # --- configuration ------------------------------------------------------------------

    def set_max_tokens(self, n_tokens: int) -> None:
        """Set the longest answer in tokens."""
        self._refuse_submitted()
        self._max_tokens = n_tokens

    def set_model(self, model: str | None) -> None:
        """Name the model that must answer; ``None`` for any."""
        self._refuse_submitted()
        self._model = model

    def get_model(self) -> str | None:
        """Return the name of the model that must answer."""
        return self._model

    def set_sampling_params(self, params: SamplingParams) -> None:
        """Set the parameters for the choice of tokens; a copy of them is kept.

        Raises:
            ValueError: they are not valid.
        """
        self._refuse_submitted()
        if not params.is_valid():
            raise ValueError(f"a value is out of its range: {params}")
        self._sampling = replace(params)

    def get_sampling_params(self) -> SamplingParams:
        """Return a copy of the parameters for the choice of tokens."""
        return replace(self._sampling)

    def set_stop_tokens(self, tokens: Sequence[int]) -> None:
        """Set tokens that end the answer, 64 at most; they are left out of it."""
        self._refuse_submitted()
        self._stop_tokens = tuple(tokens)

    def get_stop_tokens(self) -> tuple[int, ...]:
        """Return the tokens that end the answer."""
        return self._stop_tokens

    def set_stop_string(self, text: str) -> None:
        """Set a text that ends the answer and is left out of it; empty for none."""
        self._refuse_submitted()
        self._stop_string = text

    def get_stop_string(self) -> str:
        """Return the text that ends the answer; empty if there is none."""
        return self._stop_string

    def set_top_logprobs(self, n_alternatives: int) -> None:
        """Ask for log probabilities of the tokens of text, with so many alternatives.

        Args:
            n_alternatives: 1 to 20; 0 for no log probabilities.
        """
        self._refuse_submitted()
        self._n_logprobs = n_alternatives

    def get_top_logprobs(self) -> int:
        """Return how many alternatives are asked for; 0 for no log probabilities."""
        return self._n_logprobs

    # --- scheduling ---------------------------------------------------------------------

    def set_priority(self, priority: int) -> None:
        """Set the priority among this user's own requests; -10 to 10, higher first.

        A number beyond that is taken as the nearest one.
        """
        self._refuse_submitted()
        self._priority = max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))

    def get_priority(self) -> int:
        """Return the priority."""
        return self._priority

    def set_allow_prefill_only(self, allows: bool) -> None:  # noqa: FBT001  # the contract's
        """Set whether the prompt alone is processed, and nothing generated."""
        self._refuse_submitted()
        self._allows_prefill_only = allows

    def allows_prefill_only(self) -> bool:
        """Tell whether the prompt alone is processed."""
        return self._allows_prefill_only

    def set_streaming(self, is_enabled: bool) -> None:  # noqa: FBT001  # the contract's
        """Set whether the token callback is called."""
        self._refuse_submitted()
        self._is_streaming = is_enabled

    def is_streaming_enabled(self) -> bool:
        """Tell whether the token callback is called."""
        return self._is_streaming

    def set_token_callback(self, callback: TokenCallback | None) -> None:
        """Set what is called with each token, in the thread that reads the answer.

        It is called once for each token with ``False``, and once more at the end with
        ``True`` and the token that ended the answer, ``NO_TOKEN`` if none did.
        """
        self._refuse_submitted()
        self._token_callback = callback

    # --- KV cache -----------------------------------------------------------------------

    def set_reuse_cache(self, reuses: bool) -> None:  # noqa: FBT001  # the contract's
        """Set whether what is kept of earlier prompts is used; it is unless this is called."""
        self._refuse_submitted()
        self._reuses_cache = reuses

    def should_reuse_cache(self) -> bool:
        """Tell whether what is kept of earlier prompts is used."""
        return self._reuses_cache

    def set_free_cache_on_finish(self, frees: bool) -> None:  # noqa: FBT001  # the contract's
        """Set whether nothing of this request is kept once it has ended."""
        self._refuse_submitted()
        self._frees_cache = frees

    def should_free_cache_on_finish(self) -> bool:
        """Tell whether nothing of this request is kept once it has ended."""
        return self._frees_cache

    # --- time ---------------------------------------------------------------------------

    def get_arrival_timestamp_ns(self) -> int:
        """Return when it was made, in nanoseconds since 1970."""
        return self._arrival_ns

    def get_arrival_time(self) -> datetime:
        """Return when it was made."""
        return datetime.fromtimestamp(self._arrival_ns / NS_PER_S, UTC)

    # --- state --------------------------------------------------------------------------

    def add_generated_token(self, token: int) -> None:
        """Note a token of the answer; for engines."""
        with self._lock:
            self._generated.append(token)

    def get_generated_tokens(self) -> tuple[int, ...]:
        """Return the tokens of the answer so far."""
        with self._lock:
            return tuple(self._generated)

    def get_generated_token_count(self) -> int:
        """Return how many tokens the answer has so far."""
        return len(self._generated)

    def notify_token(self, token: int, is_finished: bool) -> None:  # noqa: FBT001  # as above
        """Call the token callback, if streaming is enabled; for engines."""
        if self._is_streaming and self._token_callback is not None:
            self._token_callback(token, is_finished)

    def is_finished(self) -> bool:
        """Tell whether it has ended, however."""
        return self._finished.is_set()

    def is_failed(self) -> bool:
        """Tell whether it ended by an error."""
        return bool(self._error_message)

    def get_error_message(self) -> str:
        """Return the error that ended it; empty if none did."""
        return self._error_message

    def cancel(self) -> None:
        """End it, from any thread; before it is submitted, too."""
        self._cancelled.set()
        with self._lock:
            end_answer = self._end_answer
        if end_answer is not None:
            end_answer()

    def is_cancelled(self) -> bool:
        """Tell whether ``cancel`` was called."""
        return self._cancelled.is_set()

    # --- for engines --------------------------------------------------------------------

    def submit(self) -> None:
        """Forbid further configuration.

        Raises:
            RuntimeError: it was submitted before.
        """
        with self._lock:
            self._refuse_submitted()
            self._is_submitted = True

    @contextmanager
    def ended_by(self, end_answer: Callable[[], object]) -> Iterator[None]:
        """Have ``cancel`` call a function while inside."""
        with self._lock:
            self._end_answer = end_answer
        try:
            yield
        finally:
            with self._lock:
                self._end_answer = None

    def finish(self, error_message: str = "") -> None:
        """Note its end, and the error that it ended by, if it did."""
        self._error_message = error_message
        self._finished.set()

    def _refuse_submitted(self) -> None:
        if self._is_submitted:
            raise RuntimeError(f"request {self._id} was submitted before")
