"""Constrain an answer to a grammar: which tokens are allowed, and which are forced."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from inferd.limits.worker import FORCED_TOKENS, GRAMMAR_LOOKAHEAD_S, GRAMMAR_STEP_S
from inferd.worker.llama.grammar.compiler import matcher_of, token_table_of
from inferd.worker.llama.grammar.errors import clean_message
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.prepare.model_info import TokenTable

# isort: split
from llguidance.llamacpp import (
    lltokenizer_from_vocab,  # with the binding as it is above
)

__all__ = ["Constraint", "ConstraintError", "GrammarVocabulary", "Lookahead"]

_WORD_BITS: Final = 32
_MAX_COMPARED_TOKENS: Final = 64
"""Most tokens that are compared to see whether they are prefixes of one text."""
_SPECIAL_PREFIX: Final = b"\xff"
"""llguidance's prefix for special tokens; the token of this byte alone is not special."""

_Words = npt.NDArray[np.uint32]


class Lookahead(NamedTuple):
    """Tokens that follow next because the grammar allows only one text."""

    forced: list[int]
    """Tokens that must follow."""
    likely: list[int]
    """Tokens that follow those, unless the model tokenises the text in another way."""


class ConstraintError(Exception):
    """The grammar of an answer cannot go on; its text is one line for the client."""


class GrammarVocabulary:
    """A model's vocabulary in llguidance's form. One thread compiles with it.

    Building it takes 0.3 s for 49 thousand tokens and 2 s for 262 thousand, and holds the
    interpreter lock for half of that time.

    Args:
        model: the model whose vocabulary it is.
    """

    def __init__(self, model: LlamaModel) -> None:
        ends = [*model.end_tokens] or None
        self._tokenizer = lltokenizer_from_vocab(model.vocab, eos_token=ends)
        self._n_words = -(-model.n_vocab // _WORD_BITS)
        self.special: Mapping[str, int] = {
            _text_of(model, token): token
            for token in range(model.n_vocab)
            if self.is_special(token) and model.piece(token) != _SPECIAL_PREFIX
        }
        """Ids of special tokens by their texts."""
        self._token_bytes: dict[int, bytes] = {}
        self._ends = {
            text: token for text, token in self.special.items() if model.is_end(token)
        }

    def compile(self, source: str) -> "Constraint":
        """Compile the grammar of one answer.

        Args:
            source: a grammar that was checked: it compiles within the limits.

        Raises:
            ConstraintError: it does not compile.
        """
        constraint = Constraint(self, matcher_of(self._tokenizer, source))
        constraint.allowed_tokens()
        return constraint

    def token_table(self, prefixes: Iterable[str] = ()) -> TokenTable:
        """Return the vocabulary for checking grammars in another process.

        Args:
            prefixes: texts with which tool calls of the model's family begin.
        """
        return msgspec.structs.replace(
            token_table_of(self._tokenizer),
            special_by_text=self.special,
            ends_by_text=self._ends,
            call_prefixes={text: self._prefix_tokens(text) for text in prefixes},
        )

    def _prefix_tokens(self, text: str) -> Sequence[int]:
        """Return the special token that a text begins with, or all its tokens."""
        names = (each for each in self.special if each and text.startswith(each))
        if marker := next(names, ""):
            return [self.special[marker]]
        return self.tokenize(text.encode(), after=None)

    # --- for constraints ---------------------------------------------------------

    def allowed(self, matcher: LLMatcher) -> _Words:
        """Compute the mask of allowed tokens, one bit each."""
        words = np.zeros(self._n_words, np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        return words

    def forced_token(self, allowed: _Words) -> int | None:
        """Return the allowed token that is a prefix of all other allowed ones, if any.

        That is the shortest: after it, several tokens may spell another continuation than
        a longer one does.
        """
        tokens = _tokens_of_mask(allowed)
        if len(tokens) == 1:
            return tokens[0]
        texts = [self.token_bytes(token) for token in tokens]
        if not all(texts):
            return None
        text = min(texts, key=len, default=b"")
        is_shared = all(each.startswith(text) for each in texts)
        return tokens[texts.index(text)] if tokens and is_shared else None

    def is_special(self, token: int) -> bool:
        """Tell whether a token is special."""
        return self._tokenizer.is_special_token(token)

    def token_bytes(self, token: int) -> bytes:
        """Return a token's bytes; empty for a special token."""
        if (known := self._token_bytes.get(token)) is None:
            is_special = self.is_special(token)
            known = b"" if is_special else self._tokenizer.decode_bytes([token])
            self._token_bytes[token] = known
        return known

    def tokenize(self, text: bytes, *, after: int | None) -> list[int]:
        """Tokenise a text as the model would after the token ``after``."""
        tokenize = self._tokenizer.tokenize_bytes
        if after is not None and (before := self.token_bytes(after)):
            both = tokenize(before + text)
            if both[:1] == [after]:
                return both[1:]
        return tokenize(text)


class Constraint:
    """Grammar of one answer, at its current position.

    Call ``mask`` before each sampled token and ``accept`` after it. Apart from the first
    ``allowed_tokens``, only the decoding thread calls it.
    """

    def __init__(self, vocabulary: GrammarVocabulary, matcher: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._allowed: _Words | None = None
        self._last: int | None = None

    def mask(self, logits: npt.NDArray[np.float32]) -> None:
        """Set the logits of forbidden tokens to -inf: ``(n_vocab,)``, in place.

        Tokens that end the turn are allowed wherever the grammar may end.

        Raises:
            ConstraintError: the grammar cannot go on, or takes too long.
        """
        forbidden = np.unpackbits(
            ~self.allowed_tokens().view(np.uint8), bitorder="little"
        )
        where = forbidden[: len(logits)].view(np.bool_)
        np.copyto(logits, -np.inf, where=where)

    def allowed_tokens(self) -> _Words:
        """Return the mask of allowed tokens, computed once per position.

        Raises:
            ConstraintError: the grammar cannot go on, or takes too long.
        """
        if self._allowed is None:
            began_at = time.thread_time()
            self._allowed = self._vocabulary.allowed(self._matcher)
            _check(self._matcher)
            _refuse_slow(began_at)
        return self._allowed

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by tokens.

        Raises:
            ConstraintError: one of them is not allowed, or a token takes too long.
        """
        for token in tokens:
            self._allowed = None
            self._last = token
            began_at = time.thread_time()
            self._matcher.consume_token(token)
            _check(self._matcher)
            _refuse_slow(began_at)

    def lookahead(self) -> Lookahead:
        """Return the tokens that are forced next, tokenised as the model would.

        Free text after them may share a token with the end of the forced text, so the last
        token is only likely, unless the grammar ends there.

        llguidance's own search is faster but has no limit: an array of long constants takes
        it seconds.

        Raises:
            ConstraintError: the grammar cannot go on, or takes too long.
        """
        _check(self._matcher)
        forced_token = self._vocabulary.forced_token
        # Before the copy, whose cost grows with each token.
        if self.is_stopped or forced_token(self.allowed_tokens()) is None:
            return Lookahead([], [])
        began_at = time.thread_time()
        ahead = Constraint(self._vocabulary, self._matcher.deep_copy())
        _refuse_slow(began_at)
        ahead._allowed = self.allowed_tokens()  # of the same class
        run: list[int] = []
        ends_at = time.thread_time() + GRAMMAR_LOOKAHEAD_S
        while not ahead.is_stopped and time.thread_time() < ends_at:
            token = self._vocabulary.forced_token(ahead.allowed_tokens())
            if token is None:
                break
            run.append(token)
            ahead.accept([token])
        return self._retokenize(run, is_end=ahead.is_stopped)

    def _retokenize(self, run: list[int], *, is_end: bool) -> Lookahead:
        """Tokenise the text of a run again, between its special tokens."""
        cut = self._vocabulary.tokenize
        forced: list[int] = []
        text = b""
        last = self._last
        for token in run:
            if spelling := self._vocabulary.token_bytes(token):
                text += spelling
            else:
                forced += [*cut(text, after=last), token]
                text, last = b"", token
        rest = cut(text, after=last)
        forced += rest if is_end else rest[:-1]
        if is_end or len(forced) > FORCED_TOKENS:
            return Lookahead(forced[:FORCED_TOKENS], [])
        return Lookahead(forced, rest[-1:])

    @property
    def is_stopped(self) -> bool:
        """Whether the grammar has ended, so that no token but an end token is allowed."""
        return self._matcher.is_stopped()

    @property
    def is_complete(self) -> bool:
        """Whether the answer so far satisfies the grammar."""
        matcher = self._matcher
        is_at_an_end = matcher.is_stopped() or matcher.is_accepting()
        return is_at_an_end and not matcher.is_error()


def _tokens_of_mask(allowed: _Words) -> list[int]:
    """Return the tokens of a mask; none if there are more than ``_MAX_COMPARED_TOKENS``."""
    words = allowed.nonzero()[0]
    if words.size > _MAX_COMPARED_TOKENS:
        return []
    tokens: list[int] = []
    for word, bits in zip(words.tolist(), allowed[words].tolist(), strict=True):
        places = bin(bits)[:1:-1]
        tokens += [word * _WORD_BITS + n for n, bit in enumerate(places) if bit == "1"]
    return tokens if len(tokens) <= _MAX_COMPARED_TOKENS else []


def _refuse_slow(began_at: float) -> None:
    """Raise if a grammar operation took too long.

    Args:
        began_at: this thread's processor time in seconds when the operation began.
    """
    if time.thread_time() - began_at > GRAMMAR_STEP_S:
        raise ConstraintError(
            f"the grammar needs over {GRAMMAR_STEP_S:g} s for a token"
        )


def _check(matcher: LLMatcher) -> None:
    """Raise if the matcher is in its error state, which it never leaves."""
    if matcher.is_error():
        raise ConstraintError(
            f"the grammar cannot go on: {clean_message(matcher.get_error())}"
        )


def _text_of(model: LlamaModel, token: int) -> str:
    text: bytes = llama.llama_vocab_get_text(model.vocab, token)
    return text.decode("utf-8", "replace")
