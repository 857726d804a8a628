"""A response of the contract: what was generated, why it ended, and how long it took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

CompletionReason = Literal[
    "end_of_sequence",
    "max_tokens",
    "stop_string",
    "stop_token",
    "user_cancelled",
    "error",
    "unknown",
]
"""Why an answer ended; ``unknown`` before its end, and where nothing was to be generated."""
TokenLogprob = tuple[int, float]
"""A token and its log probability."""
NO_TOKEN: Final = -1
"""In place of a token where there is none."""
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class ResponseChunk:
    """A part of an answer: one token, and the text that is complete with it."""

    request_id: str
    token: int
    """``NO_TOKEN`` where text comes without another token."""
    text_piece: str
    """Of the visible text; empty for tokens of reasoning and markers."""
    finished: bool
    """Whether it is the last; its token is the one that ended the answer, if one did."""


class ContractResponse:
    """The response to one request, while it is generated and afterwards.

    Times are of this process: they contain the way to the daemon and the queue.

    Args:
        request_id: of the request.
    """

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._top_k: list[Sequence[TokenLogprob]] = []
        self._input_token_count = 0
        self._reason: CompletionReason = "unknown"
        self._error_message = ""
        self._start_ns = time.time_ns()
        self._began_at = time.monotonic_ns()
        self._first_token_at: int | None = None
        self._finished_at: int | None = None

    def get_request_id(self) -> str:
        """Return the id of its request."""
        return self._request_id

    # --- text and tokens ----------------------------------------------------------------

    def set_text(self, text: str) -> None:
        """Replace the text."""
        self._text = [text]

    def append_text(self, text: str) -> None:
        """Append to the text."""
        self._text.append(text)

    def get_text(self) -> str:
        """Return the visible text."""
        return "".join(self._text)

    def add_token(self, token: int) -> None:
        """Append a token."""
        if self._first_token_at is None:
            self._first_token_at = time.monotonic_ns()
        self._tokens.append(token)

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """Replace the tokens."""
        self._tokens = list(tokens)

    def get_tokens(self) -> tuple[int, ...]:
        """Return all tokens: those of reasoning, markers and a stop string as well."""
        return tuple(self._tokens)

    def get_output_token_count(self) -> int:
        """Return the number of tokens."""
        return len(self._tokens)

    def set_input_token_count(self, n_tokens: int) -> None:
        """Set the number of tokens of the prompt."""
        self._input_token_count = n_tokens

    def get_input_token_count(self) -> int:
        """Return the number of tokens of the prompt."""
        return self._input_token_count

    def set_logprobs(self, logprobs: Sequence[float]) -> None:
        """Set the log probabilities of the tokens of the text."""
        self._logprobs = list(logprobs)

    def get_logprobs(self) -> tuple[float, ...]:
        """Return the log probabilities of the tokens of the text, if they were asked for."""
        return tuple(self._logprobs)

    def add_top_k_for_token(self, alternatives: Sequence[TokenLogprob]) -> None:
        """Append the most likely tokens at the next position, the best first."""
        self._top_k.append(tuple(alternatives))

    def get_top_k_logprobs(self) -> tuple[Sequence[TokenLogprob], ...]:
        """Return the most likely tokens at each position of the text."""
        return tuple(self._top_k)

    # --- the end ------------------------------------------------------------------------

    def finish(self, reason: CompletionReason | None = None) -> None:
        """Mark the end.

        Args:
            reason: why it ended; by default the one that was set.
        """
        if reason is not None:
            self._reason = reason
        self._finished_at = time.monotonic_ns()

    def is_finished(self) -> bool:
        """Tell whether it has ended."""
        return self._finished_at is not None

    def set_stopped_by_eos(self) -> None:
        """Set that the model ended its turn."""
        self._reason = "end_of_sequence"

    def has_stopped_by_eos(self) -> bool:
        """Tell whether the model ended its turn."""
        return self._reason == "end_of_sequence"

    def has_stopped_by_max_tokens(self) -> bool:
        """Tell whether the longest answer was reached."""
        return self._reason == "max_tokens"

    def has_stopped_by_stop_string(self) -> bool:
        """Tell whether the stop string was generated."""
        return self._reason == "stop_string"

    def has_stopped_by_stop_token(self) -> bool:
        """Tell whether a stop token was generated."""
        return self._reason == "stop_token"

    def has_stopped_by_user(self) -> bool:
        """Tell whether it was cancelled, by the client or by who runs the daemon."""
        return self._reason == "user_cancelled"

    def set_error(self, message: str) -> None:
        """Set that it failed; what was generated before stays."""
        self._reason, self._error_message = "error", message

    def has_error(self) -> bool:
        """Tell whether it failed."""
        return self._reason == "error"

    def get_error_message(self) -> str:
        """Return why it failed; empty if it did not."""
        return self._error_message

    def get_completion_reason(self) -> CompletionReason:
        """Return why it ended."""
        return self._reason

    # --- times --------------------------------------------------------------------------

    def get_start_time_ns(self) -> int:
        """Return when it began, in nanoseconds since 1970."""
        return self._start_ns

    def get_end_time_ns(self) -> int:
        """Return when it ended, in nanoseconds since 1970; 0 before."""
        return self._start_ns + self.get_latency_ns() if self.is_finished() else 0

    def get_latency_ns(self) -> int:
        """Return the nanoseconds from its beginning to its end; until now, before the end."""
        return self._until(self._finished_at)

    def get_latency_ms(self) -> float:
        """Return the latency in milliseconds."""
        return self.get_latency_ns() / NS_PER_MS

    def get_latency_sec(self) -> float:
        """Return the latency in seconds."""
        return self.get_latency_ns() / NS_PER_S

    def get_prefill_latency_ns(self) -> int:
        """Return the nanoseconds from its beginning to the first token."""
        return self._until(self._first_token_at or self._finished_at)

    def get_decode_latency_ns(self) -> int:
        """Return the nanoseconds from the first token to the end."""
        return self.get_latency_ns() - self.get_prefill_latency_ns()

    def get_tokens_per_second(self) -> float:
        """Return the tokens for each second of the latency."""
        seconds = self.get_latency_sec()
        return len(self._tokens) / seconds if seconds else 0.0

    def get_average_token_latency_ms(self) -> float:
        """Return the milliseconds for each token; 0 without tokens."""
        return self.get_latency_ms() / len(self._tokens) if self._tokens else 0.0

    def _until(self, at_ns: int | None) -> int:
        return (time.monotonic_ns() if at_ns is None else at_ns) - self._began_at

    # --- summary ------------------------------------------------------------------------

    def to_string(self) -> str:
        """Return a line that sums it up."""
        is_finished = "true" if self.is_finished() else "false"
        return (
            f"Response(requestId={self._request_id}, tokens={len(self._tokens)}, "
            f"finished={is_finished}, latencyMs={self.get_latency_ms():.1f}, "
            f"reason={self._reason})"
        )

    def __str__(self) -> str:
        return self.to_string()
