"""Choose the next token with llama.cpp's native sampler chain."""

import ctypes
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.job import GenerateJob, Sampling
from inferd.limits import (
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
)
from inferd.worker.backend import RefusedError
from inferd.worker.limits import PENALTY_TOKENS
from inferd.worker.llama.constraint import Ahead, Constraint, ConstraintError
from inferd.worker.llama.context import Context
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Model
from inferd.worker.llama.shortlist import shortlist

_MIN_KEEP: Final = 1
_CANDIDATE: Final = np.dtype(
    [("id", np.int32), ("logit", np.float32), ("p", np.float32)]
)
"""``llama_token_data``."""


class Sampler:
    """One job's way of choosing.

    In this order: grammar, biases, penalties, top-k, top-p, min-p, temperature. What the
    grammar forbids is never a candidate, so top-k and top-p share out what it allows.
    Temperature 0 takes the likeliest token that is left; where nothing changes scores
    that is a maximum over the logits, several times quicker than a chain. Where top-k
    comes first, the chain is given a shortlist instead of the vocabulary.

    Args:
        model: whose recommendations fill in what the job leaves open.
        job: the job.
        prompt: the job's prompt, whose last tokens count for penalties.
        constraint: what the answer is held to, if anything.

    Raises:
        RefusedError: a token is none of the model's.

    Ownership:
        The native chain is freed with the object.
    """

    def __init__(
        self,
        model: Model,
        job: GenerateJob,
        prompt: list[int],
        constraint: Constraint | None = None,
    ) -> None:
        _check_tokens(model, job)
        self._n_vocab = model.n_vocab
        self._constraint = constraint
        self._forces = constraint is not None and not job.n_alternatives
        self._min_tokens = job.min_tokens
        self._ends = model.end_tokens if job.min_tokens else ()
        self._chain = llama.llama_sampler_chain_init(
            llama.llama_sampler_chain_default_params()
        )
        temperature = _or(
            job.sampling.temperature,
            model.recommended("temp"),
            DEFAULT_TEMPERATURE,
        )
        self._add_scores(model, job.sampling, prompt)
        self._takes_likeliest = temperature == 0 and not self._n_samplers
        self._n_wanted = 0
        if temperature == 0:
            self._add(llama.llama_sampler_init_greedy())
        else:
            self._add_choice(model, job.sampling, temperature)

    def choose(self, context: Context, row: int, *, n_written: int) -> int:
        """Choose a token by the logits of a row of the last batch.

        Args:
            context: that decoded it.
            row: in the batch.
            n_written: tokens of the answer so far.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        logits = context.logits(row, self._n_vocab)
        if self._constraint is not None:
            self._constraint.mask(logits)
        if n_written < self._min_tokens:
            logits[[*self._ends]] = -np.inf
        if self._takes_likeliest:
            token = int(logits.argmax())
        elif (few := self._shortlist(logits)) is not None:
            token = self._choose_of(few, logits[few])
        else:
            token = int(llama.llama_sampler_sample(self._chain, context.handle, row))
        if self._constraint is not None:
            self._refuse_forbidden(logits[token])
        return token

    def _shortlist(
        self, logits: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.intp] | None:
        return shortlist(logits, self._n_wanted) if self._n_wanted else None

    def _choose_of(
        self, tokens: npt.NDArray[np.intp], logits: npt.NDArray[np.float32]
    ) -> int:
        """Choose one of some tokens, as ``llama_sampler_sample`` does of all."""
        data = np.empty(len(tokens), _CANDIDATE)
        data["id"], data["logit"], data["p"] = tokens, logits, 0
        candidates = llama.llama_token_data_array(
            data=data.ctypes.data_as(llama.llama_token_data_p),
            size=len(data),
            selected=-1,
            sorted=False,
        )
        llama.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        token = int(candidates.data[candidates.selected].id)
        llama.llama_sampler_accept(self._chain, token)
        return token

    def _refuse_forbidden(self, logit: np.float32) -> None:
        """Notice where nothing was left: the grammar is closed, and the answer too short."""
        if logit == -np.inf:
            raise ConstraintError("the grammar lets nothing follow, not even the end")

    def accept(self, token: int) -> None:
        """Take note of a token that was written.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        if self._constraint is not None:
            self._constraint.accept([token])

    def ahead(self) -> Ahead:
        """Give the tokens that the grammar has follow; the certain are to be accepted, too.

        Where log probabilities are wanted all tokens are chosen, if only from one.

        Raises:
            ConstraintError: the grammar cannot go on.
        """
        if self._constraint is None:
            return Ahead([], [])
        certain, likely = self._constraint.ahead()
        if not self._forces:
            return Ahead([], certain + likely)
        for token in certain:
            llama.llama_sampler_accept(self._chain, token)
        return Ahead(certain, likely)

    @property
    def is_held(self) -> bool:
        """Whether the answer is held to a grammar."""
        return self._constraint is not None

    @property
    def is_finished(self) -> bool:
        """Whether the grammar lets nothing follow."""
        return self._constraint is not None and self._constraint.is_stopped

    @property
    def structure_complete(self) -> bool | None:
        """Whether what was asked for is closed; ``None`` where nothing was."""
        return None if self._constraint is None else self._constraint.is_complete

    def __del__(self) -> None:
        if chain := getattr(self, "_chain", None):
            llama.llama_sampler_free(chain)

    @property
    def _n_samplers(self) -> int:
        return int(llama.llama_sampler_chain_n(self._chain))

    def _add(self, sampler: object) -> None:
        llama.llama_sampler_chain_add(self._chain, sampler)

    def _add_scores(self, model: Model, sampling: Sampling, prompt: list[int]) -> None:
        """Add what changes scores: biases, penalties."""
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
                if token >= 0:  # no place of a medium
                    llama.llama_sampler_accept(sampler, token)
            self._add(sampler)

    def _add_choice(self, model: Model, sampling: Sampling, temperature: float) -> None:
        top_k = _or(sampling.top_k, model.recommended("top_k"), DEFAULT_TOP_K)
        top_p = _or(sampling.top_p, model.recommended("top_p"), DEFAULT_TOP_P)
        min_p = _or(sampling.min_p, model.recommended("min_p"), 0.0)
        if not self._n_samplers:  # what changes scores has to see all of them
            self._n_wanted = int(top_k)
        self._add(llama.llama_sampler_init_top_k(int(top_k)))
        self._add(llama.llama_sampler_init_top_p(top_p, _MIN_KEEP))
        if min_p:
            self._add(llama.llama_sampler_init_min_p(min_p, _MIN_KEEP))
        self._add(llama.llama_sampler_init_temp(temperature))
        self._add(llama.llama_sampler_init_dist(sampling.seed))


def log_probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn scores into logarithms of probabilities: ``(n_vocab,)``, a copy."""
    shifted = logits - logits.max()
    result: npt.NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum())
    return result


def _or(asked: float | None, recommended: float | None, default: float) -> float:
    if asked is not None:
        return asked
    return default if recommended is None else recommended


def _check_tokens(model: Model, job: GenerateJob) -> None:
    """Refuse token ids that the vocabulary does not have."""
    allowed = f"[0, {model.n_vocab - 1}]"
    for token in job.sampling.logit_bias:
        if token >= model.n_vocab:
            raise RefusedError(f"logit_bias token {token} not in {allowed}")
    for token in job.stop_token_ids:
        if token >= model.n_vocab:
            raise RefusedError(f"stop_token_ids {token} not in {allowed}")
