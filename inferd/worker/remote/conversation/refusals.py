"""What no request to a remote may ask for, and what those of one API may not."""

from collections.abc import Mapping
from typing import Final

from inferd.backend.job import GenerateJob
from inferd.config.kinds.remote import RemoteSettings
from inferd.limits.protocol import (
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
)
from inferd.worker.backend import RefusedError

_DEFAULTS: Final[Mapping[str, object]] = {
    "temperature": DEFAULT_TEMPERATURE,
    "top_p": DEFAULT_TOP_P,
    "top_k": DEFAULT_TOP_K,
}
"""With which v1 requests come that have none."""


def refuse(settings: RemoteSettings, asked: Mapping[str, bool]) -> None:
    """Refuse a job for the first field that is asked for.

    Args:
        settings: of the backend.
        asked: whether, by the field.

    Raises:
        RefusedError: one is.
    """
    for field, is_asked in asked.items():
        if is_asked:
            raise RefusedError(f'{field}: backend "{settings.name}" cannot do this')


def refuse_local(settings: RemoteSettings, job: GenerateJob) -> None:
    """Refuse what only an engine of this machine can do.

    Raises:
        RefusedError: the job asks for some of it.
    """
    refuse(
        settings,
        {
            "min_tokens": job.min_tokens > 0,
            "stop_token_ids": bool(job.stop_token_ids),
            "prefill_only": job.prefill_only,
            # what the remote keeps of prompts is its own affair
            "cache": job.cache != "auto",
        },
    )


def refuse_structure(settings: RemoteSettings, job: GenerateJob) -> None:
    """Refuse a form of answers that is no JSON schema.

    Raises:
        RefusedError: the job has one.
    """
    if job.structure is not None and job.structure.kind != "json_schema":
        raise RefusedError(
            f'{job.structure.field}: backend "{settings.name}" takes a JSON schema alone'
        )


def explicit(job: GenerateJob, field: str) -> float | None:
    """Return a sampling parameter, unless it is the protocol's default.

    A v1 request that has none comes with that, and some models refuse all values.

    Args:
        job: that may have it.
        field: ``temperature``, ``top_p`` or ``top_k``.
    """
    value: float | None = getattr(job.sampling, field)
    return None if value == _DEFAULTS[field] else value
