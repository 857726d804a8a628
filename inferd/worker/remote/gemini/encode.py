"""Vectors of the Gemini API: ``batchEmbedContents``.

Source: https://ai.google.dev/api/embeddings, and ``google.genai.types.EmbedContentConfig`` of
the package ``google-genai``.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.job import EmbedJob
from inferd.config.kinds.gemini import GeminiSettings
from inferd.ipc.worker import Embedded
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.conversation.refusals import refuse
from inferd.worker.remote.gemini.request import model_name, path_of
from inferd.worker.remote.vectors import read_vectors

MAX_BATCH: Final = 100
"""Texts of one request, as many as the API takes."""
TASKS: Final = {
    "retrieval_query": "RETRIEVAL_QUERY",
    "retrieval_document": "RETRIEVAL_DOCUMENT",
    "similarity": "SEMANTIC_SIMILARITY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
    "question_answering": "QUESTION_ANSWERING",
    "fact_verification": "FACT_VERIFICATION",
    "code_retrieval_query": "CODE_RETRIEVAL_QUERY",
}
"""By the protocol's names."""


class _Vector(Struct):
    values: list[float] = []


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None


class _Vectors(Struct, rename="camel"):
    embeddings: list[_Vector] = []
    usage_metadata: _Usage | None = None


_VECTORS: Final = msgspec.json.Decoder(_Vectors)


def write_embed(
    settings: GeminiSettings, job: EmbedJob, _recording: bytes
) -> RemoteRequest:
    """Write the request for vectors.

    Fewer dimensions are cut off here: the first numbers of a vector stand for it there, too.

    Raises:
        RefusedError: the job has what the API cannot honour.
    """
    refuse(
        settings,
        {
            "tokens": bool(job.tokens),
            "task": job.task is not None and job.task not in TASKS,
        },
    )
    if job.n_inputs > MAX_BATCH:
        raise RefusedError(
            f'input: backend "{settings.name}" takes {MAX_BATCH} texts at once, and these '
            f"are {job.n_inputs}"
        )
    task = {} if job.task is None else {"taskType": TASKS[job.task]}
    requests = [
        {
            "model": model_name(settings),
            "content": {"parts": [{"text": text}]},
            **task,
        }
        for text in job.texts
    ]
    path = path_of(settings, "batchEmbedContents")
    body = msgspec.json.encode({"requests": requests})
    return RemoteRequest(path, body, AnswerForm.DOCUMENT)


def read_embed(
    settings: GeminiSettings, ticket: int, job: EmbedJob, body: bytes
) -> Sequence[Embedded]:
    """Read the vectors, which are in the order of the texts.

    Raises:
        RemoteError: they are none.
    """
    answer = decode_part(_VECTORS, body)
    counted = (answer.usage_metadata or _Usage()).prompt_token_count
    n_tokens = counted if counted is not None and 0 < counted < 2**31 else None
    vectors = [each.values for each in answer.embeddings]
    return read_vectors(settings.n_embd, ticket, job, vectors, n_tokens)
