"""The tokens of a streamed text, with their log probabilities."""

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from inferd.wire.responses import Alternative, Logprob
from inferd.worker.remote.api import TokenPiece
from inferd.worker.remote.failure import RemoteError

NO_ID: Final = -1
"""The id of a token whose server tells none."""
_MAX_HELD: Final = 64
"""Tokens that are held until their text comes: those of one character are at most four."""


class TokenText(Struct):
    """A token as OpenAI's API has it; ``id`` is llama-server's."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    id: int = NO_ID


class ChosenToken(TokenText):
    """A token of the answer."""

    top_logprobs: list[TokenText] = []


class LogprobReader:
    """Finds the tokens of each part of a text.

    A server may tell the tokens of a character before the character, which is a part of a
    later event. Text whose tokens are told wrongly has none.

    Args:
        n_alternatives: that were asked for; more are left out.
    """

    def __init__(self, n_alternatives: int) -> None:
        self._n_alternatives = n_alternatives
        self._held: list[TokenPiece] = []

    def read(self, text: str, tokens: Sequence[ChosenToken]) -> list[TokenPiece]:
        """Return the tokens of a text; none if they are not known.

        Raises:
            RemoteError: a log probability is none.
        """
        self._held += map(self._piece, tokens)
        if not text:
            del self._held[:-_MAX_HELD]
            return []
        held, self._held = self._held, []
        joined = b"".join(each.piece for each in held)
        return held if joined == text.encode("utf-8", "replace") else []

    def _piece(self, token: ChosenToken) -> TokenPiece:
        chosen = _alternative(token)
        others = token.top_logprobs[: self._n_alternatives]
        logprob = Logprob(
            token=chosen.token,
            id=chosen.id,
            bytes=chosen.bytes,
            logprob=chosen.logprob,
            top_logprobs=[_alternative(each) for each in others],
        )
        return TokenPiece(bytes(chosen.bytes), logprob)


def _alternative(token: TokenText) -> Alternative:
    if not (math.isfinite(token.logprob) and token.logprob <= 0):
        raise RemoteError("the remote tells a log probability that is none")
    given = token.token.encode("utf-8", "replace") if token.bytes is None else None
    try:
        piece = bytes(token.bytes or ()) if given is None else given
    except ValueError:
        raise RemoteError("the remote tells bytes of a token that are none") from None
    return Alternative(
        token=token.token,
        id=max(token.id, NO_ID),
        bytes=[*piece],
        logprob=token.logprob,
    )
