"""The lists of models that remotes tell; pure.

Sources: ``GET /v1/models`` of OpenAI and Anthropic; ``models.list`` of the Gemini API; ``GET
/api/tags`` of Ollama.
"""

from typing import Final

import msgspec
from msgspec import Struct

from inferd.wire.codec import DECODE_FAILURES
from inferd.worker.remote.api import AnswerForm, RemoteModels, RemoteRequest
from inferd.worker.remote.failure import RemoteError

_OF_GEMINI: Final = "models/"
_USUAL_TAG: Final = ":latest"
"""The tag of Ollama's names that nobody needs to write."""


class _WithId(Struct):
    id: str


class _Ids(Struct):
    data: list[_WithId]


class _WithName(Struct):
    name: str


class _Names(Struct):
    models: list[_WithName]


def read_ids(document: bytes) -> list[str]:
    """Read the list of models of OpenAI's and Anthropic's APIs.

    Raises:
        RemoteError: it is none.
    """
    try:
        return [each.id for each in msgspec.json.decode(document, type=_Ids).data]
    except DECODE_FAILURES as error:
        raise RemoteError(_IS_NONE) from error


def read_gemini_names(document: bytes) -> list[str]:
    """Read the list of the Gemini API, whose names have a prefix; raises as ``read_ids``."""
    return [each.removeprefix(_OF_GEMINI) for each in _names(document)]


def read_tags(document: bytes) -> list[str]:
    """Read Ollama's list, with names as people write them; raises as ``read_ids``."""
    names = _names(document)
    short = [each.removesuffix(_USUAL_TAG) for each in names]
    return [*dict.fromkeys([*short, *names])]


def _names(document: bytes) -> list[str]:
    try:
        return [each.name for each in msgspec.json.decode(document, type=_Names).models]
    except DECODE_FAILURES as error:
        raise RemoteError(_IS_NONE) from error


def _asked_at(path: str) -> RemoteRequest:
    return RemoteRequest(path, b"", AnswerForm.DOCUMENT)


_IS_NONE: Final = "the remote's list of models is none"
OPENAI_MODELS: Final = RemoteModels(request=_asked_at("/models"), read=read_ids)
ANTHROPIC_MODELS: Final = RemoteModels(
    request=_asked_at("/models?limit=1000"), read=read_ids
)
GEMINI_MODELS: Final = RemoteModels(
    request=_asked_at("/models?pageSize=1000"), read=read_gemini_names
)
OLLAMA_MODELS: Final = RemoteModels(request=_asked_at("/api/tags"), read=read_tags)
