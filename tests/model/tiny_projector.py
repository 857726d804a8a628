"""Projectors with random weights, for the tiny model that writes.

For pictures: LLaVA's, two layers over four patches of 28 by 28 pixels, so that a picture
is four tokens, whatever its size; or Gemma 3's, whose four tokens see one another, over
sixteen patches; or Qwen's, which makes as many tokens as a picture is large, in a grid.
For sound: Ultravox's, two layers over the same
spectrogram as Whisper's, so that every thirty seconds begun are thirty tokens.
"""

from pathlib import Path
from typing import Final

import gguf
import numpy as np

from tests.model.tiny import WIDTH as TEXT_WIDTH

N_IMAGE_TOKENS: Final = 4
N_SOUND_TOKENS: Final = 30
"""For each thirty seconds, begun or whole."""

WIDTH: Final = 32
HEADS: Final = 2
FEED_FORWARD: Final = 64
LAYERS: Final = 2
PATCH_PIXELS: Final = 14
N_MELS: Final = 80
N_POSITIONS: Final = 1500
STACKED: Final = N_POSITIONS // N_SOUND_TOKENS
SAMPLE_RATE: Final = 16_000
MERGED: Final = 2
"""Patches to a side that become one token with Gemma 3's."""
GAIN: Final = 2.0
"""Scale of the weights: enough for the answer to depend on what is seen."""


def write_tiny_projector(  # noqa: PLR0913  # all that tests want to differ
    path: Path,
    *,
    sees: bool = True,
    hears: bool = False,
    at_once: bool = False,
    in_grid: bool = False,
    text_width: int = TEXT_WIDTH,
    gain: float = GAIN,
) -> Path:
    """Write a projector; give its path.

    Args:
        path: of the file.
        sees: whether it is for pictures.
        hears: whether it is for sound.
        at_once: whether the tokens of a picture see one another.
        in_grid: whether they are in a grid, as large as the picture is.
        text_width: of the model that it fits.
        gain: scale of what comes out of pictures.
    """
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_name("tiny-random-projector")
    writer.add_string("general.type", "mmproj")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    weights = Weights(writer, np.random.default_rng(0))
    if sees and at_once:
        add_wide_eyes(writer, weights, text_width)
    elif sees and in_grid:
        add_grid_eyes(writer, weights, text_width)
    elif sees:
        add_eyes(writer, weights, text_width, gain)
    if hears:
        add_ears(writer, weights, text_width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Weights:
    """Makes tensors up, and adds them."""

    def __init__(self, writer: gguf.GGUFWriter, random: np.random.Generator) -> None:
        self._writer = writer
        self._random = random

    def noise(
        self, name: str, *shape: int, gain: float = GAIN, suffix: str = "weight"
    ) -> None:
        scale = gain / np.sqrt(np.prod(shape[1:]))
        values = self._random.standard_normal(shape) * scale
        self._writer.add_tensor(f"{name}.{suffix}", values.astype(np.float32))

    def linear(self, name: str, n_out: int, n_in: int, *, bias: bool = True) -> None:
        self.noise(name, n_out, n_in)
        if bias:
            self.bias(name, n_out)

    def bias(self, name: str, *shape: int) -> None:
        self._writer.add_tensor(f"{name}.bias", np.zeros(shape, np.float32))

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        self._writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        if bias:
            self.bias(name, width)

    def block(self, name: str, *, key_bias: bool) -> None:
        """Add a layer: attention and what follows."""
        for part in ("ln1", "ln2"):
            self.norm(f"{name}.{part}", WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            has_bias = key_bias or part != "attn_k"
            self.linear(f"{name}.{part}", WIDTH, WIDTH, bias=has_bias)
        self.linear(f"{name}.ffn_up", FEED_FORWARD, WIDTH)
        self.linear(f"{name}.ffn_down", WIDTH, FEED_FORWARD)


def add_shape(writer: gguf.GGUFWriter, medium: str, text_width: int) -> None:
    """Write what both kinds have in the header."""
    key = f"clip.{medium}"
    writer.add_bool(f"clip.has_{medium}_encoder", val=True)
    writer.add_uint32(f"{key}.embedding_length", WIDTH)
    writer.add_uint32(f"{key}.feed_forward_length", FEED_FORWARD)
    writer.add_uint32(f"{key}.projection_dim", text_width)
    writer.add_uint32(f"{key}.block_count", LAYERS)
    writer.add_uint32(f"{key}.attention.head_count", HEADS)
    writer.add_float32(f"{key}.attention.layer_norm_epsilon", 1e-5)


def add_sight(
    writer: gguf.GGUFWriter, weights: Weights, text_width: int, n_patches: int
) -> None:
    """Write what projectors for pictures share: layers over so many patches."""
    add_shape(writer, "vision", text_width)
    writer.add_bool("clip.use_gelu", val=True)
    side = int(np.sqrt(n_patches))
    writer.add_uint32("clip.vision.image_size", side * PATCH_PIXELS)
    writer.add_uint32("clip.vision.patch_size", PATCH_PIXELS)
    for key in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    weights.noise("v.patch_embd", WIDTH, 3, PATCH_PIXELS, PATCH_PIXELS)
    weights.noise("v.position_embd", n_patches, WIDTH)
    for number in range(LAYERS):
        weights.block(f"v.blk.{number}", key_bias=True)


def add_eyes(
    writer: gguf.GGUFWriter, weights: Weights, text_width: int, gain: float
) -> None:
    writer.add_string("clip.vision.projector_type", "mlp")
    add_sight(writer, weights, text_width, N_IMAGE_TOKENS)
    weights.linear("mm.0", text_width, WIDTH)
    weights.noise("mm.2", text_width, text_width, gain=gain)
    weights.bias("mm.2", text_width)


def add_wide_eyes(writer: gguf.GGUFWriter, weights: Weights, text_width: int) -> None:
    writer.add_string("clip.vision.projector_type", "gemma3")
    writer.add_uint32("clip.vision.projector.scale_factor", MERGED)
    add_sight(writer, weights, text_width, MERGED**2 * N_IMAGE_TOKENS)
    weights.norm("mm.soft_emb_norm", WIDTH, bias=False)
    weights.noise("mm.input_projection", WIDTH, text_width)


def add_grid_eyes(writer: gguf.GGUFWriter, weights: Weights, text_width: int) -> None:
    writer.add_string("clip.vision.projector_type", "qwen2vl_merger")
    add_sight(writer, weights, text_width, MERGED**2 * N_IMAGE_TOKENS)
    patch = (WIDTH, 3, PATCH_PIXELS, PATCH_PIXELS)
    weights.noise("v.patch_embd", *patch, suffix="weight.1")
    weights.norm("v.post_ln", WIDTH)
    merged = MERGED**2 * WIDTH
    weights.linear("mm.0", merged, merged)
    weights.linear("mm.2", text_width, merged)


def add_ears(writer: gguf.GGUFWriter, weights: Weights, text_width: int) -> None:
    add_shape(writer, "audio", text_width)
    writer.add_string("clip.audio.projector_type", "ultravox")
    writer.add_uint32("clip.audio.num_mel_bins", N_MELS)
    writer.add_uint32("clip.audio.projector.stack_factor", STACKED)
    weights.noise("a.conv1d.1", WIDTH, N_MELS, 3)
    weights.noise("a.conv1d.2", WIDTH, WIDTH, 3)
    for conv in ("a.conv1d.1", "a.conv1d.2"):
        weights.bias(conv, WIDTH, 1)
    weights.noise("a.position_embd", N_POSITIONS, WIDTH)
    for number in range(LAYERS):
        weights.block(f"a.blk.{number}", key_bias=False)
    weights.norm("a.post_ln", WIDTH)
    weights.norm("mm.a.norm_pre", WIDTH * STACKED, bias=False)
    weights.linear("mm.a.mlp.1", 2 * FEED_FORWARD, WIDTH * STACKED, bias=False)
    weights.norm("mm.a.norm_mid", FEED_FORWARD, bias=False)
    weights.linear("mm.a.mlp.2", text_width, FEED_FORWARD, bias=False)
