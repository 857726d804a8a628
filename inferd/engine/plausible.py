"""Numbers that a worker may tell, and what is thrown where it tells others."""

from collections.abc import Iterable

from inferd.limits import JOB_ITEM_BYTES
from inferd.wire.responses import Alternative, Logprob, Usage

__all__ = [
    "LieError",
    "SessionOverError",
    "refuse_absurd",
    "refuse_odd_usage",
    "size_of",
]


class SessionOverError(Exception):
    """Why a session is over; the whole text is for the operator.

    Args:
        reason: what clients may read of it.
        complaint: what else there is to say.
        whole: the reason in other words, where clients are told less.
    """

    def __init__(self, reason: str, complaint: str = "", *, whole: str = "") -> None:
        told = whole or reason
        super().__init__(f"{told}: {complaint}" if complaint else told)
        self.reason = reason


class LieError(SessionOverError):
    """The worker said what it cannot know, or should not say."""

    def __init__(self, lie: str) -> None:
        super().__init__("broke the protocol", lie)


_MOST = 2**53
"""What every reader of JSON can hold."""


def refuse_absurd(*ascending: int) -> None:
    """Refuse counts that are none, or where a part is more than the whole."""
    below = 0
    for each in ascending:
        if not below <= each <= _MOST:
            raise LieError(f"a count of {each}")
        below = each


def refuse_odd_usage(usage: Usage) -> None:
    """Refuse what cannot have been used: parts that are more than their whole."""
    refuse_absurd(usage.cached_tokens, usage.prompt_tokens)
    refuse_absurd(usage.completion_tokens)
    refuse_absurd(*_guessed(usage))


def _guessed(usage: Usage) -> Iterable[int]:
    counts = (usage.accepted_tokens, usage.drafted_tokens)
    return (each for each in counts if isinstance(each, int))


def size_of(logprob: Logprob) -> int:
    """Tell about how many bytes a token's alternatives take."""
    alternatives: list[Alternative] = [logprob, *logprob.top_logprobs]
    return sum(
        JOB_ITEM_BYTES + len(each.token) + len(each.bytes) for each in alternatives
    )
