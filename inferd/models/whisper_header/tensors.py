"""Names and shapes of the tensors of a whisper model."""

from typing import Final

Shape = tuple[int | str, ...]
"""Sizes of the dimensions, as numbers or as names of header fields."""

_STATE: Final = ("n_audio_state",)
_WIDE: Final = ("n_wide",)
_SQUARE: Final = ("n_audio_state", "n_audio_state")
_NORM: Final[dict[str, Shape]] = {"weight": _STATE, "bias": _STATE}
_LINEAR: Final[dict[str, Shape]] = {"weight": _SQUARE, "bias": _STATE}
_ATTENTION: Final[dict[str, dict[str, Shape]]] = {
    "query": _LINEAR,
    "key": {"weight": _SQUARE},
    "value": _LINEAR,
    "out": _LINEAR,
}
_BLOCK: Final[dict[str, dict[str, Shape]]] = {
    "mlp_ln": _NORM,
    "mlp.0": {"weight": ("n_audio_state", "n_wide"), "bias": _WIDE},
    "mlp.2": {"weight": ("n_wide", "n_audio_state"), "bias": _STATE},
    "attn_ln": _NORM,
    **{f"attn.{name}": each for name, each in _ATTENTION.items()},
}
_CROSS: Final[dict[str, dict[str, Shape]]] = {
    "cross_attn_ln": _NORM,
    **{f"cross_attn.{name}": each for name, each in _ATTENTION.items()},
}
_ENDS: Final[dict[str, Shape]] = {
    "encoder.positional_embedding": ("n_audio_state", "n_audio_ctx"),
    "encoder.conv1.weight": (3, "n_mels", "n_audio_state"),
    "encoder.conv1.bias": (1, "n_audio_state"),
    "encoder.conv2.weight": (3, "n_audio_state", "n_audio_state"),
    "encoder.conv2.bias": (1, "n_audio_state"),
    "encoder.ln_post.weight": _STATE,
    "encoder.ln_post.bias": _STATE,
    "decoder.positional_embedding": ("n_audio_state", "n_text_ctx"),
    "decoder.token_embedding.weight": ("n_audio_state", "n_vocab"),
    "decoder.ln.weight": _STATE,
    "decoder.ln.bias": _STATE,
}


def tensor_shapes(n_audio_layer: int, n_text_layer: int) -> dict[str, Shape]:
    """Return the shapes of all tensors of a model by name.

    Args:
        n_audio_layer: layers of the encoder.
        n_text_layer: layers of the decoder.
    """
    found = dict(_ENDS)
    for layer in range(n_audio_layer):
        found.update(_block_shapes(f"encoder.blocks.{layer}", _BLOCK))
    for layer in range(n_text_layer):
        found.update(_block_shapes(f"decoder.blocks.{layer}", {**_BLOCK, **_CROSS}))
    return found


def _block_shapes(prefix: str, parts: dict[str, dict[str, Shape]]) -> dict[str, Shape]:
    return {
        f"{prefix}.{part}.{name}": shape
        for part, tensors in parts.items()
        for name, shape in tensors.items()
    }
