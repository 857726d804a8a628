"""A model's projector (libmtmd): encodes images and audio as embeddings in place of tokens.

libmtmd also chooses the tokens before and after them, and splits large images and long audio
into chunks. It gets one medium at a time, and never a client's text.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.limits.worker import MEDIA_NODES_PER_CHECK
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.library.mtmd import (
    captured_log,
    context_params,
    load_mtmd,
    projector_load_error,
)
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.chunks import (
    Chunk,
    ChunkList,
    MediaChunk,
    MropeGrid,
    Vectors,
)
from inferd.worker.llama.multimodal.media import MediaData, Modalities

__all__ = ["Projector", "ProjectorError"]

_TEXT: Final = 0
"""``MTMD_INPUT_CHUNK_TYPE_TEXT``."""
_TEST_PREFIXES: Final = (b"", b"a", b"a b", b"a b c")
"""Texts of different lengths to put before an image."""
_TEST_SIDE: Final = 64
_TEST_S: Final = 1
_PLACED: Final = 3
"""How many numbers of an M-RoPE position, from the first, must grow with the prompt."""


class ProjectorError(Exception):
    """A medium cannot be encoded; the text is one line for the client."""


class Projector:
    """Encoder of images and audio for one model.

    One thread at a time may call ``tokenize``, and another one ``encode``.

    Args:
        file: a GGUF file.
        model: the model that decodes the embeddings.
        n_threads: threads to compute with.
        uses_accelerator: whether to run on the accelerator.
        alive: called regularly while it loads, as a sign of life.

    Raises:
        LoadError: libmtmd refused the file, or its images depend on the text before them.

    Ownership:
        Lives as long as its process.
    """

    def __init__(
        self,
        file: ModelFile,
        model: LlamaModel,
        *,
        n_threads: int,
        uses_accelerator: bool = False,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._mtmd = load_mtmd()
        self._file = file
        self._n_embd: int = llama.llama_model_n_embd_inp(model.handle)
        self.n_threads = n_threads
        self.n_progress = 0
        """Counter that grows while something is encoded."""
        self._n_nodes = 0
        self._is_wanted: Callable[[], bool] = lambda: True
        params = context_params(
            self._mtmd, n_threads, uses_accelerator=uses_accelerator
        )
        self._callbacks = self._install_callbacks(params, alive)
        with captured_log() as log:
            self._handle = self._mtmd.mtmd_init_from_file(
                file.library_paths[0], model.handle, params
            )
        if not self._handle:
            raise projector_load_error(file, log)
        self._marker: bytes = self._mtmd.mtmd_get_marker(self._handle)
        self.modalities = self._read_modalities()
        self._has_grids = bool(self._mtmd.mtmd_decode_use_mrope(self._handle))
        self._refuse_unfit()

    # --- capabilities ----------------------------------------------------------------

    def _read_modalities(self) -> Modalities:
        mtmd, handle = self._mtmd, self._handle
        rate = mtmd.mtmd_get_audio_sample_rate(handle)
        accepts_audio = mtmd.mtmd_support_audio(handle) and rate > 0
        return Modalities(
            bool(mtmd.mtmd_support_vision(handle)), rate if accepts_audio else 0
        )

    def _refuse_unfit(self) -> None:
        """Refuse a projector whose images depend on the text before them.

        Raises:
            LoadError: its images depend on the text before them.
        """
        if self.modalities.vision and (
            self._depends_on_text() or self._has_own_positions()
        ):
            raise self._file.load_error(
                "its encoding of an image depends on the text before it, which is not "
                "supported"
            )

    def _depends_on_text(self) -> bool:
        """Test whether the number of an image's tokens depends on the text before it."""
        sizes = set()
        with self._image_bitmap(
            np.zeros((_TEST_SIDE, _TEST_SIDE, 3), np.uint8)
        ) as bitmap:
            for text in _TEST_PREFIXES:
                chunks = self._cut(text + self._marker, bitmap)
                sizes.add(sum(p.n_tokens for p in chunks if isinstance(p, MediaChunk)))
        return len(sizes) > 1

    def _has_own_positions(self) -> bool:
        """Tell whether positions in an image do not continue those of the prompt."""
        with self._image_bitmap(
            np.zeros((_TEST_SIDE, _TEST_SIDE, 3), np.uint8)
        ) as bitmap:
            chunks = self._cut(self._marker, bitmap)
        grids = [
            p.grid for p in chunks if isinstance(p, MediaChunk) and p.grid is not None
        ]
        return any(not each.slope[:_PLACED].all() for each in grids)

    # --- chunks ------------------------------------------------------------------------

    def tokenize(self, medium: MediaData) -> list[Chunk]:
        """Split a medium into chunks, not encoded yet.

        Raises:
            ProjectorError: libmtmd cannot process it.
        """
        media = medium.media
        if media.kind == "image":
            pixels = medium.data.reshape(media.height, media.width, 3)
            with self._image_bitmap(pixels) as bitmap:
                return self._cut(self._marker, bitmap)
        with self._audio_bitmap(medium.data.view("<f4")) as bitmap:
            return self._cut(self._marker, bitmap)

    def test_inputs(self) -> Iterator[list[Chunk]]:
        """Yield the chunks of a generated input of each accepted kind, for a test."""
        if self.modalities.vision:
            grey = np.full((_TEST_SIDE, _TEST_SIDE, 3), 128, np.uint8)
            with self._image_bitmap(grey) as bitmap:
                yield self._cut(self._marker, bitmap)
        if rate := self.modalities.sample_rate:
            with self._audio_bitmap(np.zeros(_TEST_S * rate, np.float32)) as bitmap:
                yield self._cut(self._marker, bitmap)

    @contextmanager
    def _image_bitmap(self, pixels: npt.NDArray[np.uint8]) -> Iterator[int]:
        height, width, _ = pixels.shape
        data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        bitmap = self._mtmd.mtmd_bitmap_init(width, height, data)
        try:
            yield bitmap
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    @contextmanager
    def _audio_bitmap(self, samples: npt.NDArray[np.float32]) -> Iterator[int]:
        data = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        bitmap = self._mtmd.mtmd_bitmap_init_from_audio(len(samples), data)
        try:
            yield bitmap
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    def _cut(self, text: bytes, bitmap: int) -> list[Chunk]:
        owner = ChunkList(self._mtmd)
        input_text = self._mtmd.mtmd_input_text(text, len(text), False, True)  # noqa: FBT003
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        if self._mtmd.mtmd_tokenize(
            self._handle, owner.handle, ctypes.byref(input_text), bitmaps, 1
        ):
            raise ProjectorError("the projector cannot process it")
        return [self._chunk_of(owner, chunk) for chunk in owner]

    def _chunk_of(self, owner: ChunkList, chunk: int) -> Chunk:
        if self._mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT:
            n_texts = ctypes.c_size_t()
            tokens = self._mtmd.mtmd_input_chunk_get_tokens_text(
                chunk, ctypes.byref(n_texts)
            )
            return list(tokens[: n_texts.value])
        grid = self._grid(chunk) if self._has_grids else None
        is_causal = not self._mtmd.mtmd_decode_use_non_causal(self._handle, chunk)
        n_tokens: int = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        return MediaChunk(
            n_tokens,
            is_atomic=not is_causal
            or (grid is not None and grid.n_positions < n_tokens),
            is_causal=is_causal,
            grid=grid,
            source=(chunk, owner),
        )

    def _grid(self, chunk: int) -> MropeGrid:
        """Compute the positions of a chunk's rows at position 0 and per position later."""
        n_tokens = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        image = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        positions = [np.tile(np.arange(at, at + n_tokens), (4, 1)) for at in (0, 1)]
        for at in (0, 1) if image else ():
            found = (self._mtmd.mtmd_decoder_pos * n_tokens)()
            self._mtmd.mtmd_helper_image_get_decoder_pos(image, at, found)
            positions[at] = np.array([(p.t, p.y, p.x, p.z) for p in found]).T
        base, later = (each.astype(np.int32) for each in positions)
        n_positions = self._mtmd.mtmd_input_chunk_get_n_pos(chunk)
        return MropeGrid(base, later - base, n_positions)

    # --- embeddings ----------------------------------------------------------------------

    def encode(
        self, media_chunk: MediaChunk, is_wanted: Callable[[], bool]
    ) -> Vectors | None:
        """Compute a chunk's embeddings; ``None`` if it was aborted.

        Args:
            media_chunk: the chunk.
            is_wanted: called regularly; false aborts.

        Raises:
            ProjectorError: the projector failed, or its output is not finite.
        """
        assert media_chunk.source is not None  # noqa: S101  # it is not encoded yet
        handle, _ = media_chunk.source
        self._is_wanted = is_wanted
        code = self._mtmd.mtmd_encode_chunk(self._handle, handle)
        if not is_wanted():  # it was aborted
            return None
        if code:
            raise ProjectorError("the projector failed")
        found = self._mtmd.mtmd_get_output_embd(self._handle)
        shape = (media_chunk.n_tokens, self._n_embd)
        vectors: Vectors = np.ctypeslib.as_array(found, shape).copy()
        if not np.isfinite(vectors).all():
            raise ProjectorError("the projector's output is not finite")
        return vectors

    def _install_callbacks(
        self, params: ctypes.Structure, alive: Callable[[], None]
    ) -> object:
        """Install callbacks for progress and abort; return them, to keep them alive."""

        def go_on(_progress: float, _: object) -> bool:
            alive()
            return True

        progress = self._mtmd.mtmd_progress_callback(go_on)
        watch = llama.ggml_backend_sched_eval_callback(self._on_node)
        params.progress_callback = progress
        params.cb_eval = watch
        return progress, watch

    def _on_node(self, _tensor: object, asks: bool, _: object) -> bool:  # noqa: FBT001  # the library's signature
        """Answer ggml: whether to be called after this operation (``asks``), or to go on."""
        if asks:
            self._n_nodes += 1
            return self._n_nodes % MEDIA_NODES_PER_CHECK == 0
        self.n_progress += 1
        return self._is_wanted()
