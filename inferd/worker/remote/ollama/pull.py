"""Models that Ollama brings from its library, by ``POST /api/pull``.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md, "Pull a Model".
"""

from typing import Final

import msgspec
from msgspec import Struct

from inferd.worker.remote.api import (
    AnswerForm,
    RemotePull,
    RemotePullStatus,
    RemoteRequest,
)
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.failure import RemoteError, quote

_DONE: Final = "success"
_HUNDRED: Final = 100


class _Status(Struct):
    status: str = ""
    total: int = 0
    completed: int = 0
    error: str = ""


_STATUS: Final = msgspec.json.Decoder(_Status)


def write_pull(name: str) -> RemoteRequest:
    """Write the request to bring a model."""
    body = msgspec.json.encode({"model": name, "stream": True})
    return RemoteRequest("/api/pull", body, AnswerForm.LINES)


def read_pull(line: bytes) -> RemotePullStatus:
    """Read a line of progress.

    Raises:
        RemoteError: the pull failed, or the line is none.
    """
    found = decode_part(_STATUS, line)
    if found.error:
        raise RemoteError(f"the remote failed: {quote(found.error)}")
    text = quote(found.status)
    if 0 < found.completed <= found.total:
        text += f" {_HUNDRED * found.completed // found.total}%"
    return RemotePullStatus(text, is_done=found.status == _DONE)


OLLAMA_PULL: Final = RemotePull(write=write_pull, read=read_pull)
