"""Media support of a model with a projector: reading, encoding and caching."""

import time
from collections.abc import Sequence
from typing import Self

from inferd.backend.job import GenerateJob
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Loading
from inferd.limits.worker import MEDIA_READ_S, PREFILL_CHUNK_TOKENS
from inferd.worker.backend import LoadReporter, RefusedError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.cache import MediaCache
from inferd.worker.llama.multimodal.chunks import Chunk
from inferd.worker.llama.multimodal.media import MediaData, Modalities, read_medium
from inferd.worker.llama.multimodal.prefill import MediaPrefill
from inferd.worker.llama.multimodal.projector import Projector, ProjectorError
from inferd.worker.llama.multimodal.projector_thread import ProjectorThread
from inferd.worker.llama.multimodal.prompt_spans import PromptMedia

__all__ = ["MediaPipeline"]


class MediaPipeline:
    """A projector, its thread, and the cache of encoded media.

    Args:
        projector: the model's projector.
        max_bytes: host memory for the cache.
    """

    def __init__(self, projector: Projector, max_bytes: int) -> None:
        self._projector = projector
        self._cache = MediaCache(max_bytes)
        self.projector_thread = ProjectorThread(projector, self._cache)

    @classmethod
    def load(
        cls,
        file: ModelFile,
        model: LlamaModel,
        settings: LlamaCppSettings,
        report: LoadReporter,
        *,
        n_threads: int,
    ) -> Self:
        """Load a projector's file.

        Raises:
            LoadError: the projector cannot be used with this model.
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
    def modalities(self) -> Modalities:
        """Kinds of media that the model accepts."""
        return self._projector.modalities

    def make_prefill(self, context: LlamaContext) -> MediaPrefill:
        """Create the prefill of media for a context."""
        return MediaPrefill(context, self.projector_thread)

    def read_media(self, job: GenerateJob, fds: Sequence[int]) -> list[PromptMedia]:
        """Read a job's media and split them into chunks.

        Raises:
            RefusedError: an attachment is not valid, or reading all of them takes too long.
        """
        began_at = time.monotonic()
        found: list[PromptMedia] = []
        for media, fd in zip(job.media, fds, strict=True):
            if found and time.monotonic() - began_at > MEDIA_READ_S:
                raise RefusedError(
                    f"reading the attachments takes over {MEDIA_READ_S:g} s"
                )
            found.append(
                self._find_or_tokenize(job, read_medium(media, fd, self.modalities))
            )
        return found

    def _find_or_tokenize(self, job: GenerateJob, medium: MediaData) -> PromptMedia:
        known = None
        if job.cache != "off":
            known = self._cache.find(job.owner, medium.digest)
        return PromptMedia(medium.digest, known or self._tokenize(medium))

    def _tokenize(self, medium: MediaData) -> list[Chunk]:
        try:
            chunks = self._projector.tokenize(medium)
        except ProjectorError as error:
            raise RefusedError(f"{medium.name}: {error}") from error
        for each in chunks:
            if not isinstance(each, list):
                each.name = medium.name
                if not each.is_causal and each.n_tokens > PREFILL_CHUNK_TOKENS:
                    raise RefusedError(
                        f"{medium.name}: {each.n_tokens} tokens that must be decoded at "
                        f"once; at most {PREFILL_CHUNK_TOKENS} can be"
                    )
        return chunks
