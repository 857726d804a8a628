"""Range checks for numbers that a worker reports, and the errors that end a session."""

from collections.abc import Iterable

from inferd.limits.engine import JOB_ITEM_BYTES
from inferd.wire.responses import Alternative, Logprob, Usage

__all__ = [
    "ProtocolViolationError",
    "SessionEndedError",
    "check_counts",
    "check_usage",
    "logprob_bytes",
]


class SessionEndedError(Exception):
    """The session is over; the text is meant for the operator.

    Args:
        reason: the part that clients may read.
        error_line: the last error line that the worker wrote to stderr.
        detail: the full reason, where clients get a shorter one.
        is_broken_file: whether the content of a model's file is at fault.
        is_changed_file: whether a model's file changed during the load.
    """

    def __init__(
        self,
        reason: str,
        error_line: str = "",
        *,
        detail: str = "",
        is_broken_file: bool = False,
        is_changed_file: bool = False,
    ) -> None:
        text = detail or reason
        super().__init__(f"{text}: {error_line}" if error_line else text)
        self.reason = reason
        self.is_broken_file = is_broken_file
        self.is_changed_file = is_changed_file


class ProtocolViolationError(SessionEndedError):
    """The worker sent a message that it cannot or must not send."""

    def __init__(self, violation: str) -> None:
        super().__init__("broke the protocol", violation)


_MAX_COUNT = 2**53
"""The largest integer that every JSON reader can represent."""


def check_counts(*ascending: int) -> None:
    """Require non-negative counts in ascending order: no part exceeds its whole."""
    below = 0
    for count in ascending:
        if not below <= count <= _MAX_COUNT:
            raise ProtocolViolationError(f"a count of {count}")
        below = count


def check_usage(usage: Usage) -> None:
    """Require plausible counts: no part exceeds its whole."""
    check_counts(usage.cached_tokens, usage.prompt_tokens)
    check_counts(usage.completion_tokens)
    check_counts(*_draft_counts(usage))


def _draft_counts(usage: Usage) -> Iterable[int]:
    counts = (usage.accepted_tokens, usage.drafted_tokens)
    return (count for count in counts if isinstance(count, int))


def logprob_bytes(logprob: Logprob) -> int:
    """Estimate the bytes that a token's alternatives take."""
    alternatives: list[Alternative] = [logprob, *logprob.top_logprobs]
    return sum(
        JOB_ITEM_BYTES + len(token.token) + len(token.bytes) for token in alternatives
    )
