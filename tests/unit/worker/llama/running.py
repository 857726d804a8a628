"""Run jobs in the test's own process: no daemon, no pipe, no threads."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import gguf
import msgspec
import numpy as np
import numpy.typing as npt

from inferd.backend.job import EmbedJob, GenerateJob, Job, RerankJob, Sampling, Turn
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Embedded, Ended, Failed, Loaded, Scored, Step
from inferd.wire.responses import Logprob
from inferd.worker.backend import PreparedJob, StepOutcome
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.generator import Generator
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.prepare.model_info import (
    decode_prompt_format,
    decode_token_table,
    prompts_of,
)
from inferd.worker.llama.prepare.write import GrammarWriter, write_prompt

N_SLOTS: Final = 3
GREEDY: Final = Sampling(temperature=0, top_p=1, top_k=0, seed=0)

Array = npt.NDArray[np.float32]


class WritingBackend(LlamaBackend):
    """Writes what is not plain of a job itself, as a preparer does elsewhere."""

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        if isinstance(job, GenerateJob) and not (job.is_plain or job.rendered):
            job = written(self, job)
        return super().prepare(job, fds)


def load(path: Path, **settings: Any) -> tuple[LlamaBackend, Loaded]:
    """Load a model, on one thread."""
    chosen: dict[str, Any] = {"n_threads": 1, **settings}
    backend = WritingBackend(
        LlamaCppSettings(name="tiny", model=str(path), **chosen), n_slots=N_SLOTS
    )
    return backend, backend.load(lambda _: None)


def _unload(backend: LlamaBackend) -> None:
    """Free what the library holds for an idle backend, as the end of a worker does."""
    backend.token_table()  # until then a thread reads the model
    engine = backend._engine
    engine._context.close()
    if isinstance(engine, Generator) and engine._media_pipeline:
        projector = engine._media_pipeline._projector
        projector._mtmd.mtmd_free(projector._handle)
    backend._model.close()


@contextmanager
def loaded_once(path: Path, **settings: Any) -> Iterator[LlamaBackend]:
    """Load a model, on one thread, and keep it while inside.

    A hundred models that are not freed are gigabytes in the process of the tests.
    """
    backend, _ = load(path, **settings)
    yield backend
    _unload(backend)


def change_rows(
    path: Path, tensor: str, rows: slice | int, value: float | Array
) -> Path:
    """Overwrite rows of a tensor of 32-bit floats in a model file; give its path."""
    reader = gguf.GGUFReader(path, "r+")
    [found] = [each for each in reader.tensors if each.name == tensor]
    assert found.tensor_type == gguf.GGMLQuantizationType.F32
    found.data[rows] = value
    reader.data.flush()
    return path


# --- text -----------------------------------------------------------------------------


def job(
    text: str = "hello",
    *,
    max_tokens: int = 24,
    sampling: Sampling = GREEDY,
    **fields: Any,
) -> GenerateJob:
    """Ask for an answer, the likeliest by default; nothing that is kept is of use."""
    chosen: dict[str, Any] = {"cache": "off", **fields}
    return GenerateJob(
        turns=[Turn("user", text)],
        max_tokens=max_tokens,
        sampling=sampling,
        **chosen,
    )


@dataclass
class Answer:
    """All that came of a job."""

    pieces: list[bytes] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    prefilled: list[int] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)

    @property
    def text(self) -> bytes:
        """The whole answer."""
        return b"".join(self.pieces)

    @property
    def end(self) -> Ended:
        """Its only end."""
        [end] = self.ends
        return end


def take_step(backend: LlamaBackend) -> Step:
    """Advance all answers by a batch."""
    [step] = backend.step()
    assert isinstance(step, Step)
    return step


def collect(steps: Iterator[Step]) -> Mapping[int, Answer]:
    """Sort what came of some steps by job."""
    answers: defaultdict[int, Answer] = defaultdict(Answer)
    for step in steps:
        for ticket, piece in step.pieces:
            answers[ticket].pieces.append(piece)
        for ticket, logprob in step.logprobs:
            answers[ticket].logprobs.append(logprob)
        for ticket, n_tokens in step.prefilled:
            answers[ticket].prefilled.append(n_tokens)
        for end in step.ended:
            answers[end.ticket].ends.append(end)
    return answers


def steps(backend: LlamaBackend, at_most: int = 10_000) -> Iterator[Step]:
    """Advance all answers to their ends, or by some batches."""
    while backend.is_busy and at_most:
        yield take_step(backend)
        at_most -= 1


def written(backend: LlamaBackend, asked: GenerateJob) -> GenerateJob:
    """Have a job written as a preparer writes it, but in this process."""
    engine = backend._engine
    assert isinstance(engine, Generator)
    prompts = prompts_of(decode_prompt_format(engine.prompt_format))
    done = write_prompt(prompts, asked)
    if asked.is_structured:
        words = decode_token_table(engine.token_table())
        grammars = GrammarWriter(prompts, words, tokenizer_of(words))
        grammar = grammars.write(
            asked, grammars.make_checker(), open_thought=done.open_thought
        )
        done = msgspec.structs.replace(done, grammar=grammar)
    return msgspec.structs.replace(asked, rendered=done)


def answer(backend: LlamaBackend, asked: GenerateJob) -> Answer:
    """Run one job alone."""
    backend.start(1, backend.prepare(asked))
    return collect(steps(backend))[1]


# --- vectors and scores ---------------------------------------------------------------


def embed_job(
    *texts: str, dimensions: int | None = None, task: str | None = None
) -> EmbedJob:
    """Ask for vectors."""
    return EmbedJob(texts=list(texts), dimensions=dimensions, task=task)


def encode_all(
    backend: LlamaBackend, earlier: Mapping[int, StepOutcome] | None = None
) -> dict[int, StepOutcome]:
    """Run all vectors and scores to their ends; give what came of each job, joined."""
    outcomes = dict(earlier or {})
    while backend.is_busy:
        for outcome in backend.step():
            if isinstance(outcome, Step):  # nothing to tell of any job yet
                assert outcome == Step(n_read=outcome.n_read)
                continue
            known = outcomes.get(outcome.ticket)
            outcomes[outcome.ticket] = outcome if known is None else _on(known, outcome)
    return outcomes


def _on(known: StepOutcome, outcome: StepOutcome) -> StepOutcome:
    assert isinstance(known, Embedded)
    assert not known.is_last
    if isinstance(outcome, Failed):
        return outcome
    assert isinstance(outcome, Embedded)
    embeddings = known.embeddings + outcome.embeddings
    return msgspec.structs.replace(outcome, embeddings=embeddings)


def vectors_of(outcome: StepOutcome) -> Array:
    """Read vectors as the daemon's clients do."""
    assert isinstance(outcome, Embedded), outcome
    vectors = np.array(msgspec.json.decode(outcome.embeddings), np.float32)
    assert vectors.shape[1] == outcome.dimensions
    return vectors


def vectors(backend: LlamaBackend, *texts: str, **fields: Any) -> Array:
    """Embed texts in one job, alone."""
    backend.start(1, backend.prepare(embed_job(*texts, **fields)))
    return vectors_of(encode_all(backend)[1])


def scores(backend: LlamaBackend, query: str, *documents: str) -> list[float]:
    """Score documents in one job, alone."""
    backend.start(1, backend.prepare(RerankJob(query=query, documents=list(documents))))
    outcome = encode_all(backend)[1]
    assert isinstance(outcome, Scored), outcome
    return outcome.scores
