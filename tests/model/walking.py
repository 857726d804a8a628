"""Write answers under a constraint without a model: any token that is allowed."""

import faulthandler
import multiprocessing
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from multiprocessing.connection import Connection
from typing import Final

import numpy as np
from llguidance import LLTokenizer

from inferd.backend.job import Structure
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import Grammar, grammar_of
from inferd.worker.llama.grammar.checker import GrammarChecker
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.grammar.constraint import Constraint, GrammarVocabulary
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.prepare import fork_server
from inferd.worker.llama.prepare.model_info import TokenTable

PATIENCE: Final = 30
"""Tokens after which a walk takes what closes something, mostly."""
AT_MOST: Final = 400


def refusal_of(tokenizer: LLTokenizer, grammar: Grammar) -> str:
    """Try a grammar in a fork, as preparers do; give the reason where it is refused."""
    reads, writes = os.pipe()
    if not (child := os.fork()):
        faulthandler.disable()  # it may crash, and that is told
        try:
            fork_server.limit_job(0)
            fork_server.limit_compile()
            GrammarChecker(tokenizer).check(grammar)
        except RefusedError as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads, "rb") as told:  # noqa: PTH123  # a pipe
        reason = told.read().decode()
    _, status = os.waitpid(child, 0)
    return f"{grammar.where}: it takes too much" if status else reason


def refuse_all(pipe: Connection, table: TokenTable) -> None:
    """Try each grammar that is sent, and answer with the reason, until nobody sends."""
    tokenizer = tokenizer_of(table)
    with suppress(EOFError):
        while True:
            pipe.send(refusal_of(tokenizer, pipe.recv()))


class Preparer:
    """A small process that tries grammars, each of them once.

    A fork of the tests' own process takes far longer: all their memory is copied on write.
    """

    def __init__(self, table: TokenTable) -> None:
        self._told: dict[Grammar, str] = {}
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=refuse_all, args=(theirs, table), daemon=True
        )
        self._process.start()
        theirs.close()

    def refusal_of(self, grammar: Grammar) -> str:
        """Try a grammar; give the reason where it is refused."""
        if grammar not in self._told:
            self._pipe.send(grammar)
            self._told[grammar] = self._pipe.recv()
        return self._told[grammar]

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join()


class Walker:
    """Chooses at random, and comes to an end.

    Args:
        model: whose tokens it takes.
        vocabulary: the same tokens, as grammars see them.
    """

    def __init__(self, model: LlamaModel, vocabulary: GrammarVocabulary) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self._preparer = Preparer(vocabulary.token_table())
        self._compiled: dict[str, Constraint] = {}
        self._ends = [*model.end_tokens]
        pieces = [model.piece(token) for token in range(model.n_vocab)]
        self._closes = np.array([piece in (b'"', b"}", b"]") for piece in pieces])

    def compile(self, kind: str, source: str) -> Constraint:
        return self.hold(
            grammar_of(Structure(kind=kind, source=source))  # type: ignore[arg-type]
        )

    def hold(self, grammar: Grammar) -> Constraint:
        """Try a grammar, as a preparer does, and compile it, as a worker does.

        Each is tried and compiled once, and is at its beginning each time.
        """
        if reason := self._preparer.refusal_of(grammar):
            raise RefusedError(reason)
        if grammar.source not in self._compiled:
            compiled = self.vocabulary.compile(grammar.source)
            self._compiled[grammar.source] = compiled
        first = self._compiled[grammar.source]
        fresh = copy(first)
        fresh._matcher = first._matcher.deep_copy()
        return fresh

    def close(self) -> None:
        """End what tries grammars."""
        self._preparer.close()

    def allowed(self, constraint: Constraint) -> np.ndarray:
        """Find what a mask leaves: ``(n_vocab,)`` truth values."""
        logits = np.zeros(self.model.n_vocab, np.float32)
        constraint.mask(logits)
        return np.asarray(logits == 0)

    def text(self, tokens: Sequence[int]) -> bytes:
        return b"".join(map(self.model.piece, tokens))

    def write(self, constraint: Constraint, seed: int, *, jumps: bool = True) -> bytes:
        """Write an answer; the constraint tells whether it is complete."""
        chance = random.Random(seed)  # noqa: S311  # nobody's secret
        written: list[int] = []
        while not constraint.is_stopped and len(written) < AT_MOST:
            allowed = self.allowed(constraint)
            may_end = allowed[self._ends].any()
            if may_end and (len(written) > PATIENCE or chance.random() < 0.5):
                break
            allowed[self._ends] = False
            tokens = [self._choose(allowed, chance, len(written))]
            constraint.accept(tokens)
            if jumps:
                tokens += (forced := constraint.lookahead().forced)
                constraint.accept(forced)
            written += tokens
        return self.text(written)

    def _choose(self, allowed: np.ndarray, chance: random.Random, n: int) -> int:
        closing = np.flatnonzero(allowed & self._closes)
        if n > PATIENCE and closing.size and chance.random() < 0.8:
            return int(chance.choice(closing))
        return int(chance.choice(np.flatnonzero(allowed)))
