"""What streams tell about speed: pure arithmetic on when their pieces came."""

from collections.abc import Sequence
from itertools import pairwise

from bench.load.scene import Answer


class TooShortError(Exception):
    """There is too little of an answer to tell a speed by."""


def first_token_s(answer: Answer) -> float:
    """Give the seconds until the first text was there."""
    if not answer.times:
        raise TooShortError("an answer without text")
    return answer.times[0] - answer.sent_at


def decode_rate(answer: Answer) -> float:
    """Give tokens per second after the first, which comes with the prompt's end."""
    if not answer.times or answer.times[0] == answer.times[-1]:
        raise TooShortError("all that came came at once")
    return (answer.n_tokens - 1) / (answer.times[-1] - answer.times[0])


def together_rate(answers: Sequence[Answer]) -> float:
    """Give tokens per second of all streams while all of them run.

    From the moment the last one has begun to the moment the first one ends; a piece
    counts as many tokens as the pieces of its answer do on average.
    """
    if not all(answer.times for answer in answers):
        raise TooShortError("an answer without text")
    began = max(answer.times[0] for answer in answers)
    ended = min(answer.times[-1] for answer in answers)
    if began >= ended:
        raise TooShortError("the streams do not run at the same time")
    n_tokens = sum(
        sum(began < moment <= ended for moment in answer.times)
        * answer.n_tokens
        / len(answer.times)
        for answer in answers
    )
    return n_tokens / (ended - began)


def whole_rate(answers: Sequence[Answer]) -> float:
    """Give tokens per second from the first request to the last token, prompts included."""
    began = min(answer.sent_at for answer in answers)
    ended = max(answer.times[-1] for answer in answers)
    return sum(answer.n_tokens for answer in answers) / (ended - began)


def prefill_rate(answer: Answer) -> float:
    """Give the prompt's tokens per second until the first token of the answer."""
    return (answer.n_prompt - answer.n_cached) / first_token_s(answer)


def character_rate(answers: Sequence[Answer]) -> float:
    """Give characters per second after each answer's first piece, over all answers."""
    seconds = sum(answer.times[-1] - answer.times[0] for answer in answers)
    if not seconds:
        raise TooShortError("no answer has two pieces")
    return sum(sum(answer.lengths[1:]) for answer in answers) / seconds


def worst_gap_s(stream: Answer, began: float, ended: float) -> float:
    """Give the longest silence of a stream that reaches into a span of time."""
    moments = [*stream.times, *([ended] if stream.times[-1] < ended else [])]
    gaps = [
        later - earlier
        for earlier, later in pairwise(moments)
        if later > began and earlier < ended
    ]
    if not gaps:
        raise TooShortError("the stream did not run then")
    return max(gaps)


def rate_between(stream: Answer, began: float, ended: float) -> float:
    """Give a stream's pieces per second in a span of time."""
    return sum(began < moment <= ended for moment in stream.times) / (ended - began)
