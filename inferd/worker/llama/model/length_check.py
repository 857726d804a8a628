"""Refuse texts that are far too long for the context, before they are tokenised whole.

Tokenising takes linear time, with some vocabularies quadratic, and native code cannot be
stopped. So a long text is first tokenised in small parts, until it is certain that it is far
too long.
"""

import time
from collections.abc import Sequence
from typing import Final

from inferd.limits.worker import (
    TOKENIZE_AT_ONCE_BYTES,
    TOKENIZE_MAX_BYTES,
    TOKENIZE_PART_CHARS,
    TOKENIZE_S,
)
from inferd.worker.backend import RefusedError
from inferd.worker.llama.model.weights import LlamaModel

_FAR: Final = 2
"""Multiple of the context that the parts must reach. A text has as many tokens as its parts,
except for a few at the cuts, and, with vocabularies that have one token for an unknown word,
except for such words that are longer than a part."""
_SLACK: Final = 100
"""One token in this many may be counted too much; measured with seventeen vocabularies and a
dozen kinds of texts, it was one in six hundred at most."""
_PER_CUT: Final = 2
"""Tokens that a cut may add: a token is split, and a space is put before its second half."""


class FarTooLongError(Exception):
    """A text has about twice as many tokens as the context, or more.

    Attributes:
        n_tokens: lower bound of its tokens.
    """

    def __init__(self, n_tokens: int) -> None:
        super().__init__(n_tokens)
        self.n_tokens = n_tokens


class LengthCheck:
    """Length check for all texts of one job, in the order in which they are tokenised.

    Args:
        model: the model whose vocabulary counts.
        n_ctx: tokens of the context.
        parses_special: whether markers in the texts become special tokens.
    """

    def __init__(self, model: LlamaModel, n_ctx: int, *, parses_special: bool) -> None:
        self._model = model
        self._n_enough = _FAR * n_ctx
        self._parses_special = parses_special
        self._began_at = time.monotonic()

    def refuse_too_long(self, pieces: Sequence[str]) -> None:
        """Check that the next text may fit, and that time is left to tokenise it.

        Short texts pass without being counted.

        Args:
            pieces: of one text, each tokenised separately.

        Raises:
            FarTooLongError: the text is far too long.
            RefusedError: the job's texts take too long, or this one has too many bytes.
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
        tokens = self._model.tokenize_raw(
            text, adds_special=False, parses_special=self._parses_special
        )
        return len(tokens)

    def _check_time(self) -> None:
        if time.monotonic() - self._began_at > TOKENIZE_S:
            raise RefusedError(f"tokenising the texts takes over {TOKENIZE_S:g} s")
