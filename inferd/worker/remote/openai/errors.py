"""Errors of servers with OpenAI's API: whose fault, when again, and what does not fit.

A context that is too small is told by a text that is another with each server. ``OVERFLOWS``
has them, with where each was found.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.ipc.worker import Overflow
from inferd.worker.remote.errors import (
    ReportedError,
    error_in,
    error_of,
    overflow_of,
)
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.overflow import (
    OF_A_BRIDGE,
    find_overflow,
    overflow_pattern,
)

_OVERFLOW_CODES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error"}
)


OVERFLOWS: Final = (
    overflow_pattern(
        "OpenAI, vLLM",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"requested (?:about )?(?P<total>\d+) (?:output )?tokens \((?P<prompt>\d+) (?:in|of)",
    ),
    overflow_pattern(
        "OpenAI",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"(?:messages|input|prompt) resulted in (?P<prompt>\d+) tokens",
    ),
    overflow_pattern(
        "vLLM",
        r"maximum context length is (?P<n_ctx>\d+) tokens.{0,60}"
        r"(?:request has|prompt contains) (?:at least )?(?P<prompt>\d+) input tokens",
    ),
    overflow_pattern(
        "vLLM",
        r"prompt \(length (?P<prompt>\d+)\) is longer than the maximum model length of "
        r"(?P<n_ctx>\d+)",
    ),
    overflow_pattern(
        "SGLang",
        r"maximum context length of (?P<n_ctx>\d+) tokens.{0,60}total of (?P<total>\d+) "
        r"tokens: (?P<prompt>\d+) tokens from the input",
    ),
    overflow_pattern(
        "SGLang",
        r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length "
        r"\((?P<n_ctx>\d+) tokens\)",
    ),
    overflow_pattern(
        "llama-cpp-python",
        r"Requested tokens \((?P<prompt>\d+)\) exceed context window of (?P<n_ctx>\d+)",
    ),
    overflow_pattern(
        "llama-server",
        r"request \((?P<prompt>\d+) tokens\) exceeds the available context size "
        r"\((?P<n_ctx>\d+) tokens\)",
    ),
    overflow_pattern(
        "LM Studio",
        r"keep the first (?P<prompt>\d+) tokens when context the overflows.{0,80}"
        r"context length of only (?P<n_ctx>\d+) tokens",
    ),
    overflow_pattern(
        "LM Studio", r"n_keep: (?P<prompt>\d+)\s*>= n_ctx: (?P<n_ctx>\d+)"
    ),
    *OF_A_BRIDGE,
)


class _ErrorBody(Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    n_prompt_tokens: int | None = None
    """Of llama-server."""
    n_ctx: int | None = None


class _Envelope(Struct):
    error: _ErrorBody | str | None = None
    message: str | None = None
    """Of vLLM before 0.10, and of SGLang."""
    detail: str | None = None
    """Of servers with FastAPI."""


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200; see ``error_of``."""
    return error_of(status, headers, now, _reported(_decode(body)))


def error_in_answer(data: bytes) -> RemoteError:
    """Make the error that an answer reports although its status was 200."""
    return error_in(_reported(_decode(data)))


def _reported(error: _ErrorBody) -> ReportedError:
    return ReportedError(
        message=error.message or "",
        is_quota=error.code == "insufficient_quota",
        is_overflow=bool({error.code, error.type} & _OVERFLOW_CODES),
        overflow=_overflow_of(error),
    )


def _overflow_of(error: _ErrorBody) -> Overflow | None:
    if error.n_prompt_tokens is not None and error.n_ctx is not None:
        return overflow_of(
            error.n_prompt_tokens, error.n_prompt_tokens + 1, error.n_ctx
        )
    return find_overflow(error.message or "", OVERFLOWS)


def _decode(body: bytes) -> _ErrorBody:
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ErrorBody()
    match envelope.error:
        case _ErrorBody() as error:
            return error
        case str() as text:
            return _ErrorBody(message=text)
        case _:
            return _ErrorBody(message=envelope.message or envelope.detail)
