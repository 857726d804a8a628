"""A model's projector: it makes of a picture or a sound what stands in place of tokens.

libmtmd tells which tokens go before and behind, and cuts large pictures and long sounds
into parts. It is given one medium at a time, never a client's text.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.worker.limits import MEDIA_WATCHED_NODES
from inferd.worker.llama.clips import Chunks, Clip, Grid, Part, Vectors
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.library import llama
from inferd.worker.llama.media import Medium, Senses
from inferd.worker.llama.model import Model
from inferd.worker.llama.mtmd import heard, load_mtmd, parameters, refusal

__all__ = ["Projector", "ProjectorError"]

_TEXT: Final = 0
"""``MTMD_INPUT_CHUNK_TYPE_TEXT``."""
_TRIED_TEXTS: Final = (b"", b"a", b"a b", b"a b c")
"""Texts of different lengths before a picture."""
_TRIED_SIDE: Final = 64
_TRIED_S: Final = 1
_PLACED: Final = 3
"""Numbers of a position in a grid that go on with the prompt."""


class ProjectorError(Exception):
    """A medium cannot be made readable; one line for the client."""


class Projector:
    """What makes pictures and sound readable for one model.

    ``cut`` may be called by any one thread, ``encode`` by any other.

    Args:
        file: a GGUF file.
        model: that reads what it makes.
        n_threads: that it computes with.
        uses_accelerator: whether it is computed there.
        alive: called now and then while it loads.

    Raises:
        LoadError: libmtmd refused it, or what it makes cannot be read right.

    Ownership:
        Lives as long as its process.
    """

    def __init__(
        self,
        file: ModelFile,
        model: Model,
        *,
        n_threads: int,
        uses_accelerator: bool = False,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._mtmd = load_mtmd()
        self._file = file
        self._n_embd: int = llama.llama_model_n_embd_inp(model.handle)
        self.n_threads = n_threads
        self.n_seen = 0
        """Grows while something is computed."""
        self._n_nodes = 0
        self._is_wanted: Callable[[], bool] = lambda: True
        params = parameters(self._mtmd, n_threads, uses_accelerator=uses_accelerator)
        self._callbacks = self._listen(params, alive)
        with heard() as words:
            self._handle = self._mtmd.mtmd_init_from_file(
                file.library_paths[0], model.handle, params
            )
        if not self._handle:
            raise refusal(file, words)
        self._marker: bytes = self._mtmd.mtmd_get_marker(self._handle)
        self.senses = self._senses()
        self._has_grids = bool(self._mtmd.mtmd_decode_use_mrope(self._handle))
        self._refuse_unfit()

    # --- what it takes ----------------------------------------------------------------

    def _senses(self) -> Senses:
        mtmd, handle = self._mtmd, self._handle
        rate = mtmd.mtmd_get_audio_sample_rate(handle)
        hears = mtmd.mtmd_support_audio(handle) and rate > 0
        return Senses(bool(mtmd.mtmd_support_vision(handle)), rate if hears else 0)

    def _refuse_unfit(self) -> None:
        """Refuse what would be read wrong.

        Raises:
            LoadError: it is.
        """
        if self.senses.vision and (self._depends_on_text() or self._counts_pictures()):
            raise self._file.refusal(
                "what it makes of a picture depends on what stands before, which is not "
                "supported"
            )

    def _depends_on_text(self) -> bool:
        """Try whether a picture takes more places behind some texts than behind others."""
        sizes = set()
        with self._picture(np.zeros((_TRIED_SIDE, _TRIED_SIDE, 3), np.uint8)) as bitmap:
            for text in _TRIED_TEXTS:
                parts = self._cut(text + self._marker, bitmap)
                sizes.add(sum(p.n_tokens for p in parts if isinstance(p, Clip)))
        return len(sizes) > 1

    def _counts_pictures(self) -> bool:
        """Tell whether positions in a picture are none of the prompt's."""
        with self._picture(np.zeros((_TRIED_SIDE, _TRIED_SIDE, 3), np.uint8)) as bitmap:
            parts = self._cut(self._marker, bitmap)
        grids = [p.grid for p in parts if isinstance(p, Clip) and p.grid is not None]
        return any(not each.slope[:_PLACED].all() for each in grids)

    # --- parts ------------------------------------------------------------------------

    def cut(self, medium: Medium) -> list[Part]:
        """Tell what a medium is read as, in order.

        Raises:
            ProjectorError: libmtmd cannot make anything of it.
        """
        media = medium.media
        if media.kind == "image":
            pixels = medium.data.reshape(media.height, media.width, 3)
            with self._picture(pixels) as bitmap:
                return self._cut(self._marker, bitmap)
        with self._sound(medium.data.view("<f4")) as bitmap:
            return self._cut(self._marker, bitmap)

    def samples(self) -> Iterator[list[Part]]:
        """Make up something of each kind that it takes, for a test."""
        if self.senses.vision:
            grey = np.full((_TRIED_SIDE, _TRIED_SIDE, 3), 128, np.uint8)
            with self._picture(grey) as bitmap:
                yield self._cut(self._marker, bitmap)
        if rate := self.senses.sample_rate:
            with self._sound(np.zeros(_TRIED_S * rate, np.float32)) as bitmap:
                yield self._cut(self._marker, bitmap)

    @contextmanager
    def _picture(self, pixels: npt.NDArray[np.uint8]) -> Iterator[int]:
        height, width, _ = pixels.shape
        data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        bitmap = self._mtmd.mtmd_bitmap_init(width, height, data)
        try:
            yield bitmap
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    @contextmanager
    def _sound(self, samples: npt.NDArray[np.float32]) -> Iterator[int]:
        data = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        bitmap = self._mtmd.mtmd_bitmap_init_from_audio(len(samples), data)
        try:
            yield bitmap
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    def _cut(self, text: bytes, bitmap: int) -> list[Part]:
        owner = Chunks(self._mtmd)
        said = self._mtmd.mtmd_input_text(text, len(text), False, True)  # noqa: FBT003
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        if self._mtmd.mtmd_tokenize(
            self._handle, owner.handle, ctypes.byref(said), bitmaps, 1
        ):
            raise ProjectorError("the projector can make nothing of it")
        return [self._part(owner, chunk) for chunk in owner]

    def _part(self, owner: Chunks, chunk: int) -> Part:
        if self._mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT:
            n_texts = ctypes.c_size_t()
            tokens = self._mtmd.mtmd_input_chunk_get_tokens_text(
                chunk, ctypes.byref(n_texts)
            )
            return list(tokens[: n_texts.value])
        grid = self._grid(chunk) if self._has_grids else None
        is_causal = not self._mtmd.mtmd_decode_use_non_causal(self._handle, chunk)
        n_tokens: int = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        return Clip(
            n_tokens,
            is_whole=not is_causal
            or (grid is not None and grid.n_positions < n_tokens),
            is_causal=is_causal,
            grid=grid,
            source=(chunk, owner),
        )

    def _grid(self, chunk: int) -> Grid:
        """Find where the places of a part are."""
        n_tokens = self._mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        image = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        places = [np.tile(np.arange(at, at + n_tokens), (4, 1)) for at in (0, 1)]
        for at in (0, 1) if image else ():
            found = (self._mtmd.mtmd_decoder_pos * n_tokens)()
            self._mtmd.mtmd_helper_image_get_decoder_pos(image, at, found)
            places[at] = np.array([(p.t, p.y, p.x, p.z) for p in found]).T
        base, later = (each.astype(np.int32) for each in places)
        n_positions = self._mtmd.mtmd_input_chunk_get_n_pos(chunk)
        return Grid(base, later - base, n_positions)

    # --- vectors ----------------------------------------------------------------------

    def encode(self, clip: Clip, is_wanted: Callable[[], bool]) -> Vectors | None:
        """Compute a part's vectors; nothing if they are not wanted any more.

        Args:
            clip: the part.
            is_wanted: asked now and then.

        Raises:
            ProjectorError: it failed, or what it gives are no numbers.
        """
        assert clip.source is not None  # noqa: S101  # it has no vectors yet
        chunk, _ = clip.source
        self._is_wanted = is_wanted
        code = self._mtmd.mtmd_encode_chunk(self._handle, chunk)
        if not is_wanted():  # it was left in the middle
            return None
        if code:
            raise ProjectorError("the projector failed")
        found = self._mtmd.mtmd_get_output_embd(self._handle)
        shape = (clip.n_tokens, self._n_embd)
        vectors: Vectors = np.ctypeslib.as_array(found, shape).copy()
        if not np.isfinite(vectors).all():
            raise ProjectorError("the projector gave what is no number")
        return vectors

    def _listen(self, params: ctypes.Structure, alive: Callable[[], None]) -> object:
        """Have the library ask whether to go on; give what it calls."""

        def go_on(_progress: float, _: object) -> bool:
            alive()
            return True

        progress = self._mtmd.mtmd_progress_callback(go_on)
        watch = llama.ggml_backend_sched_eval_callback(self._watch)
        params.progress_callback = progress
        params.cb_eval = watch
        return progress, watch

    def _watch(self, _tensor: object, asks: bool, _: object) -> bool:  # noqa: FBT001  # the library's signature
        """Say which operations are waited for, and whether to go on behind them."""
        if asks:
            self._n_nodes += 1
            return self._n_nodes % MEDIA_WATCHED_NODES == 0
        self.n_seen += 1
        return self._is_wanted()
