"""Choose the next token with llama.cpp's native sampler chain."""

import ctypes
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.backend.job import GenerateJob, Sampling
from inferd.limits.protocol import DEFAULT_TEMPERATURE, DEFAULT_TOP_K, DEFAULT_TOP_P
from inferd.limits.worker import PENALTY_TOKENS
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.constraint import (
    Constraint,
    ConstraintError,
    Lookahead,
)
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel

BLOCK_TOKENS: Final = 64
"""Tokens of a block, of which the maximum is compared first: the fastest size for
vocabularies of 49,000 to 262,000 tokens."""


def top_k_candidates(
    scores: npt.NDArray[np.float32], n_wanted: int
) -> npt.NDArray[np.intp] | None:
    """Return a superset of the ``n_wanted`` tokens with the highest scores, in order.

    None of them scores less than the best tokens of ``n_wanted`` blocks, and none is
    impossible. NaN counts as the highest score, so that it is not overlooked.

    Args:
        scores: ``(n_vocab,)``.
        n_wanted: at least 1.

    Returns:
        Token ids; ``None`` if there would be none, or not much fewer than all.
    """
    n_blocks = len(scores) // BLOCK_TOKENS
    if n_blocks <= 2 * n_wanted:
        return None
    n_blocked = n_blocks * BLOCK_TOKENS
    # A block is a column, so that the maximum runs over whole rows at once.
    tops = scores[:n_blocked].reshape(BLOCK_TOKENS, n_blocks).max(axis=0)
    tops.partition(n_blocks - n_wanted)
    is_less = scores < max(tops[n_blocks - n_wanted], _LEAST)
    result: npt.NDArray[np.intp] = np.logical_not(is_less, out=is_less).nonzero()[0]
    return result if len(result) else None


_LEAST: Final = np.finfo(np.float32).min
"""The lowest score of a possible token."""
_MIN_KEEP: Final = 1
_FEW_TOKENS: Final = 256
"""Candidates for which memory is reserved at first: usually some more than top-k."""
_CANDIDATE: Final = np.dtype(
    [("id", np.int32), ("logit", np.float32), ("p", np.float32)]
)
"""``llama_token_data``."""


class Sampler:
    """Token sampler of one job.

    Applies, in this order: grammar, biases, penalties, top-k, top-p, min-p, temperature.
    Tokens that the grammar forbids are never candidates, so top-k and top-p apply to allowed
    tokens only. Temperature 0 takes the likeliest remaining token; without biases and
    penalties that is a maximum over the logits, several times faster than a chain. If top-k
    comes first, the chain gets a superset of the top k instead of the whole vocabulary.

    Args:
        model: its recommended options apply where the job sets none.
        job: the job.
        prompt: tokens of the job's prompt, of which the last ones count for penalties.
        constraint: the grammar of the answer, if it has one.

    Raises:
        RefusedError: a token id of the job is not in the vocabulary.

    Ownership:
        The native chain is freed with the object.
    """

    def __init__(
        self,
        model: LlamaModel,
        job: GenerateJob,
        prompt: list[int],
        constraint: Constraint | None = None,
    ) -> None:
        _check_tokens(model, job)
        self._n_vocab = model.n_vocab
        self._constraint = constraint
        self.is_constrained = constraint is not None
        """Whether the answer has a grammar."""
        self._accepts_forced = constraint is not None and not job.n_alternatives
        self._min_tokens = job.min_tokens
        self._end_tokens = _indices(model.end_tokens if job.min_tokens else ())
        stops = set(job.stop_token_ids).difference(model.end_tokens)
        self._stop_tokens = _indices(stops if job.min_tokens else ())
        self._chain = llama.llama_sampler_chain_init(
            llama.llama_sampler_chain_default_params()
        )
        temperature = _first_set(
            job.sampling.temperature,
            model.recommended("temp"),
            DEFAULT_TEMPERATURE,
        )
        self._add_scores(model, job.sampling, prompt)
        self._is_greedy = temperature == 0 and not self._n_samplers
        self._n_wanted = 0
        self._reserve(_FEW_TOKENS)
        if temperature == 0:
            self._add(llama.llama_sampler_init_greedy())
        else:
            self._add_truncation(model, job.sampling, temperature)

    def choose(self, context: LlamaContext, row: int, *, n_written: int) -> int:
        """Choose a token by one row of logits of the last batch.

        Args:
            context: the context that decoded the batch.
            row: the row of logits.
            n_written: tokens of the answer so far.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        logits = context.logits(row, self._n_vocab)
        if self._constraint is not None:
            self._constraint.mask(logits)
        if n_written < self._min_tokens:
            self._hold_back_ends(logits)
        if self._is_greedy:
            token = int(logits.argmax())
        elif (few := self._top_k_candidates(logits)) is not None:
            token = self._choose_from(few, logits[few])
        else:
            token = int(llama.llama_sampler_sample(self._chain, context.handle, row))
        if self._constraint is not None:
            self._refuse_forbidden(logits[token])
        return token

    def _hold_back_ends(self, logits: npt.NDArray[np.float32]) -> None:
        """Make the tokens that would end the answer impossible, in place.

        Stop tokens stay possible where the grammar allows no other token: this early they
        do not end the answer.
        """
        stop_logits = logits[self._stop_tokens]
        logits[self._end_tokens] = -np.inf
        logits[self._stop_tokens] = -np.inf
        if self._constraint and stop_logits.size and logits.max() == -np.inf:
            logits[self._stop_tokens] = stop_logits

    def _top_k_candidates(
        self, logits: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.intp] | None:
        return top_k_candidates(logits, self._n_wanted) if self._n_wanted else None

    def _choose_from(
        self, tokens: npt.NDArray[np.intp], logits: npt.NDArray[np.float32]
    ) -> int:
        """Choose one of these tokens, as ``llama_sampler_sample`` does of the vocabulary."""
        n_tokens = len(tokens)
        if n_tokens > len(self._data):
            self._reserve(n_tokens)
        self._ids[:n_tokens], self._logits[:n_tokens] = tokens, logits
        candidates = self._candidates
        candidates.size, candidates.selected, candidates.sorted = n_tokens, -1, False
        llama.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        token = int(candidates.data[candidates.selected].id)
        llama.llama_sampler_accept(self._chain, token)
        return token

    def _reserve(self, n_tokens: int) -> None:
        self._data = np.zeros(n_tokens, _CANDIDATE)
        self._ids, self._logits = self._data["id"], self._data["logit"]
        pointer = self._data.ctypes.data_as(llama.llama_token_data_p)
        self._candidates = llama.llama_token_data_array(data=pointer)

    def _refuse_forbidden(self, logit: np.float32) -> None:
        """Raise if no token was allowed: the grammar must end before ``min_tokens``."""
        if logit == -np.inf:
            raise ConstraintError(
                "the grammar allows no further token, not even the end"
            )

    def accept(self, token: int) -> None:
        """Advance the grammar by a token of the answer.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        if self._constraint is not None:
            self._constraint.accept([token])

    def lookahead(self) -> Lookahead:
        """Return the tokens that the grammar forces next, which the caller accepts too.

        For a job with log probabilities they are only likely: every token is sampled.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        if self._constraint is None:
            return Lookahead([], [])
        forced, likely = self._constraint.lookahead()
        if not self._accepts_forced:
            return Lookahead([], forced + likely)
        for token in forced:
            llama.llama_sampler_accept(self._chain, token)
        return Lookahead(forced, likely)

    @property
    def is_finished(self) -> bool:
        """Whether the grammar allows no further token."""
        return self._constraint is not None and self._constraint.is_stopped

    @property
    def structure_complete(self) -> bool | None:
        """Whether the answer satisfies its grammar; ``None`` without one."""
        return None if self._constraint is None else self._constraint.is_complete

    def __del__(self) -> None:
        if chain := getattr(self, "_chain", None):
            llama.llama_sampler_free(chain)

    @property
    def _n_samplers(self) -> int:
        return int(llama.llama_sampler_chain_n(self._chain))

    def _add(self, sampler: object) -> None:
        llama.llama_sampler_chain_add(self._chain, sampler)

    def _add_scores(
        self, model: LlamaModel, sampling: Sampling, prompt: list[int]
    ) -> None:
        """Add the samplers that change scores: biases and penalties."""
        if sampling.logit_bias:
            biases = (llama.llama_logit_bias * len(sampling.logit_bias))(
                *sampling.logit_bias.items()
            )
            self._add(
                llama.llama_sampler_init_logit_bias(model.n_vocab, len(biases), biases)
            )
        penalties = (
            sampling.repeat_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
        )
        if penalties != (1, 0, 0):
            sampler = llama.llama_sampler_init_penalties(
                model.n_vocab, PENALTY_TOKENS, *penalties
            )
            for token in prompt[-PENALTY_TOKENS:]:
                if token >= 0:  # not a placeholder for media
                    llama.llama_sampler_accept(sampler, token)
            self._add(sampler)

    def _add_truncation(
        self, model: LlamaModel, sampling: Sampling, temperature: float
    ) -> None:
        top_k = _first_set(sampling.top_k, model.recommended("top_k"), DEFAULT_TOP_K)
        top_p = _first_set(sampling.top_p, model.recommended("top_p"), DEFAULT_TOP_P)
        min_p = _first_set(sampling.min_p, model.recommended("min_p"), 0.0)
        if not self._n_samplers:  # biases and penalties need the whole vocabulary
            self._n_wanted = int(top_k)
        self._add(llama.llama_sampler_init_top_k(int(top_k)))
        self._add(llama.llama_sampler_init_top_p(top_p, _MIN_KEEP))
        if min_p:
            self._add(llama.llama_sampler_init_min_p(min_p, _MIN_KEEP))
        self._add(llama.llama_sampler_init_temp(temperature))
        self._add(llama.llama_sampler_init_dist(sampling.seed))


def log_probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return log probabilities of logits: ``(n_vocab,)``, a copy."""
    shifted = logits - logits.max()
    result: npt.NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum())
    return result


def _indices(tokens: Collection[int]) -> npt.NDArray[np.intp]:
    return np.fromiter(tokens, np.intp, len(tokens))


def _first_set(asked: float | None, recommended: float | None, default: float) -> float:
    if asked is not None:
        return asked
    return default if recommended is None else recommended


def _check_tokens(model: LlamaModel, job: GenerateJob) -> None:
    """Refuse token ids outside the vocabulary."""
    allowed = f"[0, {model.n_vocab - 1}]"
    for token in job.sampling.logit_bias:
        if token >= model.n_vocab:
            raise RefusedError(f"logit_bias token {token} not in {allowed}")
    for token in job.stop_token_ids:
        if token >= model.n_vocab:
            raise RefusedError(f"stop_token_ids {token} not in {allowed}")
