"""Compute embeddings or rerank scores: texts of several jobs share a batch."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import EmbedJob, GenerateJob, Job, RerankJob, TranscribeJob
from inferd.dialects.prompt.task_prefixes import task_prefix
from inferd.ipc.worker import Embedded, Failed, Paused, Scored, Step
from inferd.limits.worker import ENCODE_BATCH_SEQUENCES, ENCODE_BATCH_TOKENS
from inferd.worker.backend import LoadError, PreparedJob, RefusedError, StepOutcome
from inferd.worker.llama.generate.decoder import INTERRUPTED, DecodeError
from inferd.worker.llama.generate.token_writer import NAN_REASON
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.length_check import FarTooLongError, LengthCheck
from inferd.worker.llama.model.prompt_tokens import refuse_unknown
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.texts import PreparedTexts, Vector, json_rows, unit_vectors

_SELF_TEST_TEXTS = 8
_SCORE_TOLERANCE = 0.1
"""Largest difference between scores of equal texts in one batch; measured ones were equal."""


def encoder_capabilities(model: LlamaModel, n_ctx: int) -> BackendCapabilities:
    """Return the capabilities of an encoder; its weights need not be loaded."""
    return BackendCapabilities(
        generate=False,
        embed=model.use == "embed",
        rerank=model.use == "rerank",
        n_ctx=n_ctx,
        n_embd=model.n_embd,
    )


class Encoder:
    """An embedding or rerank model and its context. Only the decoding thread runs it.

    A batch takes texts of the running jobs round-robin, so that a request with one text
    does not wait for another with a thousand.
    """

    def __init__(self, model: LlamaModel, *, n_ctx: int, n_threads: int) -> None:
        self._model = model
        self._n_ctx = n_ctx
        self._n_batch = batch_tokens(n_ctx)
        self._context = LlamaContext.for_encoding(
            model, n_batch=self._n_batch, n_threads=n_threads
        )
        self._batch = Batch(self._n_batch)
        self._running: dict[int, PreparedTexts] = {}
        self._paused: dict[int, PreparedTexts] = {}
        self._pause_reports: list[StepOutcome] = []
        self._waiting: deque[int] = deque()
        self._in_batch: frozenset[int] = frozenset()
        self._n_single_batches = 0

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities to report to the daemon."""
        return encoder_capabilities(self._model, self._n_ctx)

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, or a pause is still to be reported."""
        return bool(self._running or self._pause_reports)

    @property
    def n_busy_cores(self) -> int:
        """Cores that background work uses beside decoding: none."""
        return 0

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from the next batch on."""
        self._context.use_threads(n_threads)

    def self_test(self) -> None:
        """Encode a few texts, so that a broken build crashes before the worker is ready.

        Raises:
            LoadError: encoding failed, or its results are not finite, or not scores.
        """
        texts = ["Hello"] * _SELF_TEST_TEXTS
        job = EmbedJob(texts=texts, dimensions=None, task=None)
        tokens = self._model.tokenize("Hello")[: self._n_ctx]
        test = PreparedTexts(job, [tokens] * _SELF_TEST_TEXTS)
        self.start(0, test)
        try:
            while self.is_busy:
                self.step()
        except DecodeError as error:
            raise LoadError(f"encode self-test failed: {error}") from error
        if not np.isfinite(test.results).all():
            raise LoadError("encode self-test failed: the result is not finite")
        if self._model.use == "rerank":
            self._refuse_headless(np.stack(test.results)[:, 0])

    def _refuse_headless(self, scores: Vector) -> None:
        """Compare the scores of equal texts in one batch.

        For a model without a classification head, llama.cpp returns elements of an
        embedding as scores.
        """
        if np.ptp(scores) > _SCORE_TOLERANCE:
            raise LoadError("encode self-test failed: the model has no head for scores")

    # --- preparing --------------------------------------------------------------------

    def prepare(self, job: Job) -> PreparedTexts:
        """Tokenise a job's texts, or check its tokens.

        Raises:
            RefusedError: a text is longer than the context, a token is not in the vocabulary,
                tokenising takes too long, or more dimensions are asked for than there are.
        """
        match job:
            case EmbedJob():
                return PreparedTexts(job, self._inputs(job))
            case RerankJob():
                return PreparedTexts(job, self._pairs(job))
            case GenerateJob() | TranscribeJob():
                raise RefusedError("this model generates no text")

    def _inputs(self, job: EmbedJob) -> list[list[int]]:
        n_embd = self._model.n_embd
        if job.dimensions is not None and job.dimensions > n_embd:
            raise RefusedError(f"dimensions {job.dimensions} not in [1, {n_embd}]")
        if job.tokens:
            return self._checked(job.tokens)
        prefix = task_prefix(self._model.architecture, self._model.name, job.task)
        texts = ([prefix + text] for text in job.texts)
        return self._tokenize_all(texts, "input", "")

    def _checked(self, tokenized: list[list[int]]) -> list[list[int]]:
        """Return a client's tokens; the first that do not fit, or are none, are refused."""
        for index, tokens in enumerate(tokenized):
            where = f"tokens[{index}]"
            if len(tokens) > self._n_ctx:
                raise self._too_long(where, str(len(tokens)), "")
            refuse_unknown(tokens, self._model.n_vocab, where)
        return tokenized

    def _pairs(self, job: RerankJob) -> list[list[int]]:
        texts = ([job.query, document] for document in job.documents)
        return self._tokenize_all(texts, "documents", " with the query")

    def _tokenize_all(
        self,
        texts: Iterable[Sequence[str]],
        field: str,
        suffix: str,
    ) -> list[list[int]]:
        """Tokenise texts, or pairs of texts, in order; the first that does not fit is refused."""
        length_check = LengthCheck(self._model, self._n_ctx, parses_special=False)
        tokenized: list[list[int]] = []
        for index, pieces in enumerate(texts):
            where = f"{field}[{index}]"
            try:
                length_check.refuse_too_long(pieces)
            except FarTooLongError as error:
                n_tokens = f"at least {error.n_tokens}"
                raise self._too_long(where, n_tokens, suffix) from error
            tokens = self._tokens(*pieces)
            if not tokens:
                raise RefusedError(f"{where} has no tokens")
            if len(tokens) > self._n_ctx:
                raise self._too_long(where, str(len(tokens)), suffix)
            tokenized.append(tokens)
        return tokenized

    def _tokens(self, first: str, second: str | None = None) -> list[int]:
        if second is None:
            return self._model.tokenize(first, parses_special=False)
        return self._model.tokenize_pair(first, second)

    def _too_long(self, where: str, n_tokens: str, suffix: str) -> RefusedError:
        return RefusedError(
            f"{where} has {n_tokens} tokens{suffix}, the context {self._n_ctx}"
        )

    # --- running ----------------------------------------------------------------------

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Add a job's texts to those that are encoded."""
        assert isinstance(prepared, PreparedTexts)  # noqa: S101  # ours come from prepare alone
        self._running[ticket] = prepared
        self._waiting.append(ticket)

    def pause(self, ticket: int) -> None:
        """Stop encoding a job's texts until it is resumed."""
        if (prepared := self._running.pop(ticket, None)) is not None:
            self._waiting.remove(ticket)
            self._paused[ticket] = prepared
            self._pause_reports.append(Paused(ticket=ticket))

    def resume(self, ticket: int) -> None:
        """Encode the rest of a job's texts, unless it was dropped."""
        if (prepared := self._paused.pop(ticket, None)) is not None:
            self.start(ticket, prepared)

    def drop(self, ticket: int) -> None:
        """Remove a job."""
        self._paused.pop(ticket, None)
        if self._running.pop(ticket, None) is not None:
            self._waiting.remove(ticket)

    def interrupt(self, ticket: int) -> None:
        """Cut the batch short if it is this job's alone; any thread may call."""
        if self._in_batch == {ticket}:
            self._context.interrupt()

    def step(self) -> list[StepOutcome]:
        """Encode a batch; return new results of jobs, or the tokens read if there are none.

        Raises:
            DecodeError: the library failed; the process should end.
        """
        if self._pause_reports:
            reports, self._pause_reports = self._pause_reports, []
            return reports
        tickets = self._fill()
        self._in_batch = frozenset(tickets)
        code = self._context.decode(self._batch.handle)
        self._in_batch = frozenset()
        if code == INTERRUPTED:
            self._context.clear_interrupt()
        elif code:
            raise DecodeError(f"llama_decode gave {code} for {len(self._batch)} tokens")
        else:
            self._store_results(tickets)
        self._context.clear_cells()
        new = [self._report(*each) for each in list(self._running.items())]
        outcomes = [each for each in new if each is not None]
        return outcomes or ([] if code else [Step(n_read=len(self._batch))])

    def _store_results(self, tickets: list[int]) -> None:
        """Store the result of each text in the batch.

        A NaN in one text's cells can reach the others, so all are computed again, alone.
        """
        vectors = [
            self._context.pooled(sequence, self._model.n_pooled)
            for sequence in range(len(tickets))
        ]
        if len(vectors) > 1 and not np.isfinite(vectors).all():
            self._n_single_batches = len(vectors)
            return
        for ticket, vector in zip(tickets, vectors, strict=True):
            self._running[ticket].results.append(vector)

    def _fill(self) -> list[int]:
        """Fill the batch with jobs' next texts, round-robin; return the tickets of its rows.

        The first job whose text did not fit is first in the next batch.
        """
        self._batch.clear()
        tickets: list[int] = []
        left_out: list[int] = []
        max_texts = 1 if self._n_single_batches else ENCODE_BATCH_SEQUENCES
        self._n_single_batches = max(0, self._n_single_batches - 1)
        n_passed = 0
        while len(tickets) < max_texts and n_passed < len(self._waiting):
            ticket = self._waiting[0]
            self._waiting.rotate(-1)
            n_passed += 1
            prepared = self._running[ticket]
            index = len(prepared.results) + tickets.count(ticket)
            if index == len(prepared.texts):
                continue
            if len(prepared.texts[index]) > self._n_batch - len(self._batch):
                left_out.append(ticket)
                continue
            self._batch.add_for_pooling(prepared.texts[index], sequence=len(tickets))
            tickets.append(ticket)
            n_passed = 0
        if left_out:
            self._waiting.rotate(-self._waiting.index(left_out[0]))
        return tickets

    def _report(self, ticket: int, prepared: PreparedTexts) -> StepOutcome | None:
        """Return a job's new results, if it is time to report them.

        Embeddings are reported batch by batch: to serialise 2,048 of them at once takes
        0.3 s or more, during which no other job advances.
        """
        is_first = prepared.n_reported == 0
        new = prepared.results[prepared.n_reported :]
        prepared.n_reported += len(new)
        is_last = prepared.n_reported == len(prepared.texts)
        is_finite = bool(np.isfinite(new).all())
        if is_last or not is_finite:
            self.drop(ticket)
        match prepared.job:
            case _ if not is_finite:
                return Failed(ticket=ticket, reason=NAN_REASON)
            case RerankJob() if is_last:
                scores = [float(each[0]) for each in prepared.results]
                return Scored(ticket=ticket, scores=scores)
            case EmbedJob(dimensions=dimensions) if new:
                vectors = unit_vectors(np.stack(new)[:, :dimensions])
                return Embedded(
                    ticket=ticket,
                    embeddings=json_rows(vectors, is_first=is_first, is_last=is_last),
                    dimensions=vectors.shape[1],
                    is_last=is_last,
                )
        return None


def batch_tokens(n_ctx: int) -> int:
    """Return the tokens of a batch for texts of up to ``n_ctx`` tokens."""
    return max(n_ctx, ENCODE_BATCH_TOKENS)
