"""Hold an answer to a grammar: which tokens may follow, and which have to."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher
from llguidance.llamacpp import lltokenizer_from_vocab

from inferd.worker.limits import (
    FORCED_TOKENS,
    GRAMMAR_AHEAD_S,
    GRAMMAR_STEP_S,
)
from inferd.worker.llama.blame import worded
from inferd.worker.llama.compiler import matcher_of, words_of
from inferd.worker.llama.facts import Words
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Model

__all__ = ["Ahead", "Constraint", "ConstraintError", "Vocabulary"]

_WORD_BITS: Final = 32
_SPELLINGS: Final = 64
"""Tokens that are looked at to see whether they spell beginnings of one text."""
_A_BYTE: Final = b"\xff"
"""What llguidance marks special tokens with; a token of this byte alone is none."""

_Words = npt.NDArray[np.uint32]


class Ahead(NamedTuple):
    """The tokens that come next."""

    certain: list[int]
    """Those that the grammar leaves no choice about."""
    likely: list[int]
    """What follows them, if the text goes on as the model would cut it."""


class ConstraintError(Exception):
    """An answer cannot be held to its grammar any further; one line for the client."""


class Vocabulary:
    """A model's tokens as grammars see them. One thread compiles.

    Making it takes 0.3 s for 49 thousand tokens and 2 s for 262 thousand; for half of
    that no other thread of Python gets to run.

    Args:
        model: whose they are.
    """

    def __init__(self, model: Model) -> None:
        ends = [*model.end_tokens] or None
        self._tokenizer = lltokenizer_from_vocab(model.vocab, eos_token=ends)
        self._n_words = -(-model.n_vocab // _WORD_BITS)
        self.special: Mapping[str, int] = {
            _text_of(model, token): token
            for token in range(model.n_vocab)
            if self.is_special(token) and model.piece(token) != _A_BYTE
        }
        """Tokens that no text spells, by what they are called."""
        self._spelt: dict[int, bytes] = {}
        self._ends = {
            text: token for text, token in self.special.items() if model.is_end(token)
        }

    def compile(self, source: str) -> "Constraint":
        """Make what an answer is held to.

        Args:
            source: a grammar that was tried: that compiles in the time and room there is.

        Raises:
            ConstraintError: it does not compile.
        """
        constraint = Constraint(self, matcher_of(self._tokenizer, source))
        constraint.look()
        return constraint

    def words(self, openings: Iterable[str] = ()) -> Words:
        """Give what grammars are tried for in another process.

        Args:
            openings: texts with which the calls of the model's family begin.
        """
        return msgspec.structs.replace(
            words_of(self._tokenizer),
            named=self.special,
            ends_named=self._ends,
            openings={text: self._opening(text) for text in openings},
        )

    def _opening(self, text: str) -> Sequence[int]:
        """Give the token that a text begins with, or the tokens of all of it."""
        names = (each for each in self.special if each and text.startswith(each))
        if marker := next(names, ""):
            return [self.special[marker]]
        return self.cut(text.encode(), after=None)

    # --- for constraints ---------------------------------------------------------

    def allowed(self, matcher: LLMatcher) -> _Words:
        """Find the tokens that may follow, one bit each."""
        words = np.zeros(self._n_words, np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        return words

    def only_way(self, allowed: _Words) -> int | None:
        """Find the token that spells how all that may follow begins, if one does.

        Of those that spell less or more of the same text it is the shortest: behind a
        longer one's beginning there may be another way on, of several tokens.
        """
        tokens = _few(allowed)
        if len(tokens) == 1:
            return tokens[0]
        texts = [self.spelling(token) for token in tokens]
        if not all(texts):
            return None
        text = min(texts, key=len, default=b"")
        is_shared = all(each.startswith(text) for each in texts)
        return tokens[texts.index(text)] if tokens and is_shared else None

    def is_special(self, token: int) -> bool:
        """Tell whether a token is one that no text spells."""
        return self._tokenizer.is_special_token(token)

    def spelling(self, token: int) -> bytes:
        """Give a token's bytes; none for one that no text spells."""
        if (known := self._spelt.get(token)) is None:
            is_special = self.is_special(token)
            known = b"" if is_special else self._tokenizer.decode_bytes([token])
            self._spelt[token] = known
        return known

    def cut(self, text: bytes, *, after: int | None) -> list[int]:
        """Cut a text into tokens as the model would, behind the token it has last."""
        tokenize = self._tokenizer.tokenize_bytes
        if after is not None and (before := self.spelling(after)):
            both = tokenize(before + text)
            if both[:1] == [after]:
                return both[1:]
        return tokenize(text)


class Constraint:
    """What one answer is held to, from where it is by now.

    ``mask`` before each choice, ``accept`` after it. All but the first belong to the
    thread that decodes.
    """

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._allowed: _Words | None = None
        self._last: int | None = None

    def mask(self, logits: npt.NDArray[np.float32]) -> None:
        """Make all that may not follow impossible: ``(n_vocab,)``, in place.

        Tokens that end the turn may follow wherever the grammar may end.

        Raises:
            ConstraintError: the grammar cannot go on, or has become too much work.
        """
        forbidden = np.unpackbits(~self.look().view(np.uint8), bitorder="little")
        where = forbidden[: len(logits)].view(np.bool_)
        np.copyto(logits, -np.inf, where=where)

    def look(self) -> _Words:
        """Find the tokens that may follow, unless that is known.

        Raises:
            ConstraintError: the grammar cannot go on, or has become too much work.
        """
        if self._allowed is None:
            began_at = time.thread_time()
            self._allowed = self._vocabulary.allowed(self._matcher)
            _check(self._matcher)
            _refuse_slow(began_at)
        return self._allowed

    def accept(self, tokens: Sequence[int]) -> None:
        """Go on by tokens that may follow.

        Raises:
            ConstraintError: one of them may not, or it has become too much work.
        """
        for token in tokens:
            self._allowed = None
            self._last = token
            began_at = time.thread_time()
            self._matcher.consume_token(token)
            _check(self._matcher)
            _refuse_slow(began_at)

    def ahead(self) -> Ahead:
        """Give the tokens that have to follow, cut as the model would cut their text.

        What comes after them may be free, and share a token with the end of theirs: so
        the last one is but likely, unless nothing can follow it.

        llguidance's own search is quicker and has no bound: an array of long constants
        takes it seconds.

        Raises:
            ConstraintError: the grammar cannot go on, or has become too much work.
        """
        _check(self._matcher)
        if self.is_stopped or self._vocabulary.only_way(self.look()) is None:
            return Ahead([], [])  # without a copy, which takes longer with each token
        began_at = time.thread_time()
        ahead = Constraint(self._vocabulary, self._matcher.deep_copy())
        _refuse_slow(began_at)
        ahead._allowed = self.look()  # another of us
        run: list[int] = []
        ends_at = time.thread_time() + GRAMMAR_AHEAD_S
        while not ahead.is_stopped and time.thread_time() < ends_at:
            token = self._vocabulary.only_way(ahead.look())
            if token is None:
                break
            run.append(token)
            ahead.accept([token])
        return self._as_cut(run, is_end=ahead.is_stopped)

    def _as_cut(self, run: list[int], *, is_end: bool) -> Ahead:
        """Cut a run of tokens anew, between those that no text spells."""
        cut = self._vocabulary.cut
        certain: list[int] = []
        text = b""
        last = self._last
        for token in run:
            if spelling := self._vocabulary.spelling(token):
                text += spelling
            else:
                certain += [*cut(text, after=last), token]
                text, last = b"", token
        rest = cut(text, after=last)
        certain += rest if is_end else rest[:-1]
        if is_end or len(certain) > FORCED_TOKENS:
            return Ahead(certain[:FORCED_TOKENS], [])
        return Ahead(certain, rest[-1:])

    @property
    def is_stopped(self) -> bool:
        """Whether the grammar is at its end, and nothing but the end may follow."""
        return self._matcher.is_stopped()

    @property
    def is_complete(self) -> bool:
        """Whether the answer satisfies the grammar as it stands."""
        matcher = self._matcher
        is_at_an_end = matcher.is_stopped() or matcher.is_accepting()
        return is_at_an_end and not matcher.is_error()


def _few(allowed: _Words) -> list[int]:
    """Give the tokens of a mask; none where they are many."""
    words = allowed.nonzero()[0]
    if words.size > _SPELLINGS:
        return []
    tokens: list[int] = []
    for word, bits in zip(words.tolist(), allowed[words].tolist(), strict=True):
        places = bin(bits)[:1:-1]
        tokens += [word * _WORD_BITS + n for n, bit in enumerate(places) if bit == "1"]
    return tokens if len(tokens) <= _SPELLINGS else []


def _refuse_slow(began_at: float) -> None:
    """Refuse to go on where something took too long.

    Args:
        began_at: seconds of this thread's processor time, when it began.
    """
    if time.thread_time() - began_at > GRAMMAR_STEP_S:
        raise ConstraintError(
            f"the grammar needs over {GRAMMAR_STEP_S:g} s for a token"
        )


def _check(matcher: LLMatcher) -> None:
    """Turn llguidance's state of error into an exception: it never leaves that state."""
    if matcher.is_error():
        raise ConstraintError(
            f"the grammar cannot go on: {worded(matcher.get_error())}"
        )


def _text_of(model: Model, token: int) -> str:
    text: bytes = llama.llama_vocab_get_text(model.vocab, token)
    return text.decode("utf-8", "replace")
