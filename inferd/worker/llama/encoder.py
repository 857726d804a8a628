"""Turn texts into vectors or scores: many texts, of any jobs, in one batch."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from inferd.capabilities import BackendCapabilities
from inferd.dialects.embedding import task_prefix
from inferd.ipc import Embedded, Failed, Paused, Scored, Step
from inferd.job import EmbedJob, GenerateJob, Job, RerankJob, TranscribeJob
from inferd.worker.backend import LoadError, Outcome, PreparedJob, RefusedError
from inferd.worker.limits import ENCODE_BATCH_SEQUENCES, ENCODE_BATCH_TOKENS
from inferd.worker.llama.batch import Batch
from inferd.worker.llama.context import Context
from inferd.worker.llama.decoder import INTERRUPTED, NO_NUMBER, DecodeError
from inferd.worker.llama.gauge import FarTooLongError, Gauge
from inferd.worker.llama.model import Model
from inferd.worker.llama.vectors import Vector, json_rows, unit_vectors

_SELF_TEST_TEXTS = 8
_SCORE_TOLERANCE = 0.1
"""How far scores of one text in one batch may be apart; those measured were equal."""


@dataclass
class PreparedTexts(PreparedJob):
    """A job's texts as tokens, and what came of those that are done."""

    job: EmbedJob | RerankJob
    texts: list[list[int]]
    results: list[Vector] = field(default_factory=list)
    n_told: int = 0
    """Results that were looked at, and told of if they are vectors."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.texts))


class Encoder:
    """A model that embeds or scores, and its context. One thread runs it.

    A batch takes texts of the running jobs in turn, so that a request with one text does
    not wait for another with a thousand.
    """

    def __init__(self, model: Model, *, n_ctx: int, n_threads: int) -> None:
        self._model = model
        self._n_ctx = n_ctx
        self._n_batch = batch_tokens(n_ctx)
        self._context = Context.to_encode(
            model, n_batch=self._n_batch, n_threads=n_threads
        )
        self._batch = Batch(self._n_batch)
        self._running: dict[int, PreparedTexts] = {}
        self._paused: dict[int, PreparedTexts] = {}
        self._told: list[Outcome] = []
        self._waiting: deque[int] = deque()
        self._in_batch: frozenset[int] = frozenset()
        self._n_alone = 0

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(
            generate=False,
            embed=self._model.use == "embed",
            rerank=self._model.use == "rerank",
            n_ctx=self._n_ctx,
            n_embd=self._model.n_embd,
        )

    @property
    def is_busy(self) -> bool:
        """Whether any job runs, or has just been paused."""
        return bool(self._running or self._told)

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from the next batch on."""
        self._context.use_threads(n_threads)

    def self_test(self) -> None:
        """Encode for real, so that a build that crashes does so before it is ready.

        Raises:
            LoadError: it fails, or what it gives are no numbers, or no scores.
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
        """Compare the scores of one text, several times in a batch.

        Without a head for scores, llama.cpp takes them from places in a vector.
        """
        if np.ptp(scores) > _SCORE_TOLERANCE:
            raise LoadError("encode self-test failed: the model has no head for scores")

    # --- preparing --------------------------------------------------------------------

    def prepare(self, job: Job) -> PreparedTexts:
        """Tokenise a job's texts.

        Raises:
            RefusedError: a text is longer than the context, they take too long to
                tokenise, or there are too many dimensions.
        """
        match job:
            case EmbedJob():
                return PreparedTexts(job, self._inputs(job))
            case RerankJob():
                return PreparedTexts(job, self._pairs(job))
            case GenerateJob() | TranscribeJob():
                raise RefusedError("this model writes no text")

    def _inputs(self, job: EmbedJob) -> list[list[int]]:
        n_embd = self._model.n_embd
        if job.dimensions is not None and job.dimensions > n_embd:
            raise RefusedError(f"dimensions {job.dimensions} not in [1, {n_embd}]")
        prefix = task_prefix(self._model.architecture, self._model.name, job.task)
        texts = ([prefix + text] for text in job.texts)
        return self._read(texts, "input", "")

    def _pairs(self, job: RerankJob) -> list[list[int]]:
        texts = ([job.query, document] for document in job.documents)
        return self._read(texts, "documents", " with the query")

    def _read(
        self,
        texts: Iterable[Sequence[str]],
        field: str,
        of_what: str,
    ) -> list[list[int]]:
        """Tokenise texts, or pairs, one after the other, up to the first that is unfit."""
        gauge = Gauge(self._model, self._n_ctx, parses_special=False)
        read: list[list[int]] = []
        for index, pieces in enumerate(texts):
            where = f"{field}[{index}]"
            try:
                gauge.check(pieces)
            except FarTooLongError as error:
                n_tokens = f"at least {error.n_tokens}"
                raise self._unfit(where, n_tokens, of_what) from error
            tokens = self._tokens(*pieces)
            if not tokens:
                raise RefusedError(f"{where} has no tokens")
            if len(tokens) > self._n_ctx:
                raise self._unfit(where, str(len(tokens)), of_what)
            read.append(tokens)
        return read

    def _tokens(self, first: str, second: str | None = None) -> list[int]:
        if second is None:
            return self._model.tokenize(first, parses_special=False)
        return self._model.pair(first, second)

    def _unfit(self, where: str, n_tokens: str, of_what: str) -> RefusedError:
        return RefusedError(
            f"{where} has {n_tokens} tokens{of_what}, the context {self._n_ctx}"
        )

    # --- running ----------------------------------------------------------------------

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Let a job's texts take part."""
        assert isinstance(prepared, PreparedTexts)  # noqa: S101  # ours come from prepare alone
        self._running[ticket] = prepared
        self._waiting.append(ticket)

    def pause(self, ticket: int) -> None:
        """Have no more of a job's texts take part."""
        if (prepared := self._running.pop(ticket, None)) is not None:
            self._waiting.remove(ticket)
            self._paused[ticket] = prepared
            self._told.append(Paused(ticket=ticket))

    def resume(self, ticket: int) -> None:
        """Let the rest of a job's texts take part, unless it was dropped."""
        if (prepared := self._paused.pop(ticket, None)) is not None:
            self.start(ticket, prepared)

    def drop(self, ticket: int) -> None:
        """Forget a job."""
        self._paused.pop(ticket, None)
        if self._running.pop(ticket, None) is not None:
            self._waiting.remove(ticket)

    def interrupt(self, ticket: int) -> None:
        """Cut the batch short if it is this job's alone; any thread may call."""
        if self._in_batch == {ticket}:
            self._context.interrupt()

    def step(self) -> list[Outcome]:
        """Encode a batch; give the jobs that are done with it, or what was read of others.

        Raises:
            DecodeError: the library failed; the process had better end.
        """
        if self._told:
            told, self._told = self._told, []
            return told
        tickets = self._fill()
        self._in_batch = frozenset(tickets)
        code = self._context.decode(self._batch.handle)
        self._in_batch = frozenset()
        if code == INTERRUPTED:
            self._context.allow()
        elif code:
            raise DecodeError(f"llama_decode gave {code} for {len(self._batch)} tokens")
        else:
            self._keep(tickets)
        self._context.forget_all()
        new = [self._tell(*each) for each in list(self._running.items())]
        outcomes = [each for each in new if each is not None]
        return outcomes or ([] if code else [Step(n_read=len(self._batch))])

    def _keep(self, tickets: list[int]) -> None:
        """Take what came of each text in the batch.

        What is no number in one of them spoils the others: they are computed anew, alone.
        """
        vectors = [
            self._context.pooled(sequence, self._model.n_pooled)
            for sequence in range(len(tickets))
        ]
        if len(vectors) > 1 and not np.isfinite(vectors).all():
            self._n_alone = len(vectors)
            return
        for ticket, vector in zip(tickets, vectors, strict=True):
            self._running[ticket].results.append(vector)

    def _fill(self) -> list[int]:
        """Put the next text of each job in the batch, in turn; give whose they are.

        Who is left out for want of room is the first in the next batch.
        """
        self._batch.clear()
        tickets: list[int] = []
        left_out: list[int] = []
        max_texts = 1 if self._n_alone else ENCODE_BATCH_SEQUENCES
        self._n_alone = max(0, self._n_alone - 1)
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
            self._batch.add_whole(prepared.texts[index], sequence=len(tickets))
            tickets.append(ticket)
            n_passed = 0
        if left_out:
            self._waiting.rotate(-self._waiting.index(left_out[0]))
        return tickets

    def _tell(self, ticket: int, prepared: PreparedTexts) -> Outcome | None:
        """Give what is new of a job, if that is to be told by now.

        Vectors are, batch by batch: to write 2,048 of them at once takes 0.3 s and more,
        in which nobody else's are computed.
        """
        is_first = prepared.n_told == 0
        new = prepared.results[prepared.n_told :]
        prepared.n_told += len(new)
        is_last = prepared.n_told == len(prepared.texts)
        is_sound = bool(np.isfinite(new).all())
        if is_last or not is_sound:
            self.drop(ticket)
        match prepared.job:
            case _ if not is_sound:
                return Failed(ticket=ticket, reason=NO_NUMBER)
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
    """Tell how many tokens go in a batch, when a text may have ``n_ctx``."""
    return max(n_ctx, ENCODE_BATCH_TOKENS)
