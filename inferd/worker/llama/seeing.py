"""All that a model with a projector has more than others: media in its prompts."""

import time
from collections.abc import Sequence
from typing import Self

from inferd.config import LlamaCppSettings
from inferd.ipc import Loading
from inferd.job import GenerateJob
from inferd.worker.backend import RefusedError, Report
from inferd.worker.limits import MEDIA_READ_S, PREFILL_CHUNK_TOKENS
from inferd.worker.llama.clips import Part
from inferd.worker.llama.context import Context
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.looking import Looking
from inferd.worker.llama.media import Medium, Senses, read_medium
from inferd.worker.llama.model import Model
from inferd.worker.llama.projecting import Projecting
from inferd.worker.llama.projector import Projector, ProjectorError
from inferd.worker.llama.shown import Shown
from inferd.worker.llama.spans import Seen

__all__ = ["Seeing"]


class Seeing:
    """A projector, its thread, and what it has made.

    Args:
        projector: of the model.
        max_bytes: of host memory for what it has made.
    """

    def __init__(self, projector: Projector, max_bytes: int) -> None:
        self._projector = projector
        self._shown = Shown(max_bytes)
        self.projecting = Projecting(projector, self._shown)

    @classmethod
    def load(
        cls,
        file: ModelFile,
        model: Model,
        settings: LlamaCppSettings,
        report: Report,
        *,
        n_threads: int,
    ) -> Self:
        """Load a projector's file.

        Raises:
            LoadError: it cannot be used with this model.
        """
        mapping = Loading(phase="mmap", path=str(file.path))
        report(mapping)
        projector = Projector(
            file,
            model,
            n_threads=n_threads,
            uses_accelerator=bool(settings.n_gpu_layers),
            alive=lambda: report(mapping),
        )
        return cls(projector, settings.media_cache_mb * 2**20)

    @property
    def senses(self) -> Senses:
        """What the model takes."""
        return self._projector.senses

    def looking_into(self, context: Context) -> Looking:
        """Make what reads media into a context."""
        return Looking(context, self.projecting)

    def see(self, job: GenerateJob, fds: Sequence[int]) -> list[Seen]:
        """Read and cut a job's media.

        Raises:
            RefusedError: one of them cannot be read, or all of them take too long.
        """
        began_at = time.monotonic()
        seen: list[Seen] = []
        for media, fd in zip(job.media, fds, strict=True):
            if seen and time.monotonic() - began_at > MEDIA_READ_S:
                raise RefusedError(
                    f"reading the attachments takes over {MEDIA_READ_S:g} s"
                )
            seen.append(self._see(job, read_medium(media, fd, self.senses)))
        return seen

    def _see(self, job: GenerateJob, medium: Medium) -> Seen:
        known = None
        if job.cache != "off":
            known = self._shown.find(job.owner, medium.digest)
        return Seen(medium.digest, known or self._cut(medium))

    def _cut(self, medium: Medium) -> list[Part]:
        try:
            parts = self._projector.cut(medium)
        except ProjectorError as error:
            raise RefusedError(f"{medium.name}: {error}") from error
        for each in parts:
            if not isinstance(each, list):
                each.name = medium.name
                if not each.is_causal and each.n_tokens > PREFILL_CHUNK_TOKENS:
                    raise RefusedError(
                        f"{medium.name}: {each.n_tokens} tokens that have to be read at "
                        f"once; at most {PREFILL_CHUNK_TOKENS} can be"
                    )
        return parts
