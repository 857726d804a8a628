"""Vectors of Ollama: ``POST /api/embed``.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md, "Generate Embeddings".
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.job import EmbedJob
from inferd.config.kinds.ollama import OllamaSettings
from inferd.ipc.worker import Embedded
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.conversation.refusals import refuse
from inferd.worker.remote.ollama.errors import error_in_answer
from inferd.worker.remote.vectors import read_vectors

_NULL: Final = msgspec.Raw(b"null")


class _Vectors(Struct):
    embeddings: list[list[float]] = []
    prompt_eval_count: int | None = None
    error: msgspec.Raw = _NULL


_VECTORS: Final = msgspec.json.Decoder(_Vectors)


def write_embed(
    settings: OllamaSettings, job: EmbedJob, _recording: bytes
) -> RemoteRequest:
    """Write the request for vectors; a text that does not fit is to be refused there.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    refuse(settings, {"task": job.task is not None, "tokens": bool(job.tokens)})
    body: dict[str, object] = {
        "model": settings.model,
        "input": job.texts,
        "truncate": False,
    }
    if settings.n_ctx is not None:
        body["options"] = {"num_ctx": settings.n_ctx}
    if settings.keep_alive is not None:
        body["keep_alive"] = settings.keep_alive
    return RemoteRequest("/api/embed", msgspec.json.encode(body), AnswerForm.DOCUMENT)


def read_embed(
    settings: OllamaSettings, ticket: int, job: EmbedJob, body: bytes
) -> Sequence[Embedded]:
    """Read the vectors, which are in the order of the texts.

    Raises:
        RemoteError: they are none, or an error is reported.
    """
    answer = decode_part(_VECTORS, body)
    if answer.error != _NULL:
        raise error_in_answer(body)
    counted = answer.prompt_eval_count
    n_tokens = counted if counted is not None and 0 < counted < 2**31 else None
    return read_vectors(settings.n_embd, ticket, job, answer.embeddings, n_tokens)
