"""Errors of Ollama: ``{"error": TEXT}``, with a status or as the last line of an answer."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.worker.remote.errors import ReportedError, error_in, error_of
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.overflow import (
    OF_A_BRIDGE,
    find_overflow,
    overflow_pattern,
)

OVERFLOWS: Final = (
    overflow_pattern(
        "llama-server",
        r"request \((?P<prompt>\d+) tokens\) exceeds the available context size "
        r"\((?P<n_ctx>\d+) tokens\)",
    ),
    *OF_A_BRIDGE,
)
"""Of llama-server, which Ollama runs, and of this project's bridge."""
_IS_OVERFLOW: Final = re.compile(
    r"exceeds? (?:the |maximum )?context length|exceeded max context length",
    re.IGNORECASE,
)
"""Texts without the numbers that would tell by how much."""


class _Error(Struct):
    error: str | None = None


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200; see ``error_of``."""
    return error_of(status, headers, now, _reported(body))


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    return error_in(_reported(data))


def _reported(body: bytes) -> ReportedError:
    try:
        message = msgspec.json.decode(body, type=_Error).error or ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = ""
    return ReportedError(
        message=message,
        is_overflow=_IS_OVERFLOW.search(message) is not None,
        overflow=find_overflow(message, OVERFLOWS),
    )
