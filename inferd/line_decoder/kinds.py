"""The kinds of requests whose large lines can be decoded, and what a result may be."""

from collections.abc import Mapping
from typing import Final

import msgspec

from inferd.backend.job import GenerateJob
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.limits.line_decoder import MAX_HEAD_BYTES
from inferd.line_decoder.embed import EMBED
from inferd.line_decoder.generate import BLOCKS, TEXT
from inferd.line_decoder.kind import AnyLineKind
from inferd.line_decoder.messages import DecodeResult, DecodeTask, RequestHead
from inferd.line_decoder.rerank import RERANK
from inferd.routing import decode_requirement

_ALL: Final[tuple[AnyLineKind, ...]] = (TEXT, BLOCKS, EMBED, RERANK)
KINDS: Final[Mapping[str, AnyLineKind]] = {each.name: each for each in _ALL}
"""By the names that tasks have."""


def max_result_bytes(kind: AnyLineKind) -> int:
    """Return the most bytes of a result for lines of a kind, without its sections."""
    return MAX_HEAD_BYTES + kind.max_job_bytes


def is_plausible(task: DecodeTask, result: DecodeResult) -> bool:
    """Tell whether a result is possible for a line of this kind.

    An earlier line may have compromised the process, so its results are checked: they
    may be wrong, but must not break the daemon.
    """
    parts = (result.failure, result.cancel, result.append, result.request)
    if (
        sum(part is not None for part in parts) != 1
        or min(result.sections, default=0) < 0
    ):
        return False
    n_sections = len(result.sections)
    if sum(result.sections) > MAX_IPC_MESSAGE_BYTES + task.n_bytes:
        return False
    if result.request is not None:
        return _is_head_plausible(task, result.request, n_sections)
    if result.append is not None:
        return KINDS[task.kind].takes_appends and n_sections == 1
    return n_sections == 0


def _is_head_plausible(task: DecodeTask, head: RequestHead, n_sections: int) -> bool:
    kind = KINDS[task.kind]
    try:
        request, n_texts = kind.read_head(head)
    except msgspec.DecodeError:
        return False
    if head.kind != task.kind or not set(head.stats) <= set(request.counts()):
        return False
    job, speech = head.job, head.transcription
    if head.refusal is not None:
        return job is None and speech is None and n_sections == 0
    return (
        isinstance(job, kind.job)
        and n_sections == 1 + n_texts
        and _is_owned(task, job)
        and (speech is None or speech.owner == task.owner)
        and all(map(_is_requirement, head.needs))
    )


def _is_owned(task: DecodeTask, job: object) -> bool:
    """Tell whether a job belongs to the user who sent the line."""
    return not isinstance(job, GenerateJob) or job.owner == task.owner


def _is_requirement(encoded: list[str | int]) -> bool:
    try:
        decode_requirement(encoded)
    except ValueError:
        return False
    return True
