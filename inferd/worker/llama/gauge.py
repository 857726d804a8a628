"""Tell of long texts that they cannot fit, before they are tokenised as a whole.

Tokenising takes time by a text's length, with some vocabularies by its square, and native
code cannot be stopped. So a long text is first tokenised in small parts, for no longer
than it takes to see that it is far too long.
"""

import time
from collections.abc import Sequence
from typing import Final

from inferd.worker.backend import RefusedError
from inferd.worker.limits import (
    TOKENIZE_AT_ONCE_BYTES,
    TOKENIZE_MAX_BYTES,
    TOKENIZE_PART_CHARS,
    TOKENIZE_S,
)
from inferd.worker.llama.model import Model

_FAR: Final = 2
"""Contexts that the parts must come to. A text's tokens are those of its parts but for
some at the cuts; with vocabularies that make one token of a word they do not know, but
for those of such words that are longer than a part."""
_SLACK: Final = 100
"""Tokens of which one may be too many all the same: with seventeen vocabularies and texts
of a dozen kinds it was one of six hundred at most."""
_PER_CUT: Final = 2
"""Tokens that a cut may add: one is cut in two, and a space put before the second."""


class FarTooLongError(Exception):
    """A text has about twice as many tokens as the context, or more.

    Attributes:
        n_tokens: at least so many.
    """

    def __init__(self, n_tokens: int) -> None:
        super().__init__(n_tokens)
        self.n_tokens = n_tokens


class Gauge:
    """Looks at all texts of one job, in the order in which they are tokenised.

    Args:
        model: that reads them.
        n_ctx: tokens that fit.
        parses_special: whether markers in the texts become special tokens.
    """

    def __init__(self, model: Model, n_ctx: int, *, parses_special: bool) -> None:
        self._model = model
        self._n_enough = _FAR * n_ctx
        self._parses_special = parses_special
        self._began_at = time.monotonic()

    def check(self, pieces: Sequence[str]) -> None:
        """See that what is tokenised next may fit, and takes no more time than there is.

        Short texts pass without a look.

        Args:
            pieces: of one text, each tokenised apart.

        Raises:
            FarTooLongError: it is far too long.
            RefusedError: it takes too long to tell.
        """
        self._check_time()
        n_bytes = sum(len(piece.encode()) for piece in pieces)
        if n_bytes > TOKENIZE_AT_ONCE_BYTES:
            self._count(pieces)
        if n_bytes > TOKENIZE_MAX_BYTES:
            raise RefusedError(
                f"a text of {n_bytes} bytes with few tokens: "
                f"at most {TOKENIZE_MAX_BYTES} bytes are tokenised at once"
            )

    def _count(self, pieces: Sequence[str]) -> None:
        n_tokens = 0
        n_read = 0
        for piece in pieces:
            for begin in range(0, len(piece), TOKENIZE_PART_CHARS):
                part = piece[begin : begin + TOKENIZE_PART_CHARS]
                n_tokens += self._n_tokens(part) - (_PER_CUT if begin else 0)
                if n_tokens > self._n_enough:
                    raise FarTooLongError(n_tokens - n_tokens // _SLACK)
                n_read += len(part)
                if n_read > TOKENIZE_MAX_BYTES:
                    return
            self._check_time()

    def _n_tokens(self, text: str) -> int:
        tokens = self._model.cut(
            text, adds_special=False, parses_special=self._parses_special
        )
        return len(tokens)

    def _check_time(self) -> None:
        if time.monotonic() - self._began_at > TOKENIZE_S:
            raise RefusedError(f"tokenising the texts takes over {TOKENIZE_S:g} s")
