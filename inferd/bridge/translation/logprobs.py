"""Log probabilities of tokens, as OpenAI's API and others that follow it write them."""

from collections.abc import Sequence

from msgspec import UnsetType

from inferd.wire.responses import Alternative, Logprob

Fields = dict[str, object]


def stated_logprobs(
    logprobs: Sequence[Logprob] | UnsetType, n_alternatives: int
) -> list[Fields]:
    """Return the tokens of a frame with their log probabilities.

    Args:
        logprobs: of a frame.
        n_alternatives: of each token; the daemon reports one at least.
    """
    if isinstance(logprobs, UnsetType):
        return []
    return [
        {
            **_token(each),
            "top_logprobs": [*map(_token, each.top_logprobs[:n_alternatives])],
        }
        for each in logprobs
    ]


def _token(token: Alternative) -> Fields:
    return {"token": token.token, "logprob": token.logprob, "bytes": token.bytes}
