"""The facts of a speech model in whisper.cpp's format."""

from math import prod
from typing import Final

from inferd.models.facts.model import ModelFacts
from inferd.models.ggml_types import NAMES
from inferd.models.whisper_header.header import WhisperHeader
from inferd.models.whisper_header.tensors import tensor_shapes

_SIZES: Final = {4: "tiny", 6: "base", 12: "small", 24: "medium", 32: "large"}
"""Names of models by the layers of their encoders, as whisper.cpp derives them."""
_LAYERS_OF_TURBO: Final = 4


def whisper_facts(header: WhisperHeader, n_bytes: int) -> ModelFacts:
    """Gather the facts of a model.

    Args:
        header: of its file.
        n_bytes: of the file, which is nearly all weights.
    """
    numbers = header._asdict() | {"n_wide": 4 * header.n_audio_state}
    shapes = tensor_shapes(header.n_audio_layer, header.n_text_layer).values()
    quantisation = NAMES[header.weights_type]
    return ModelFacts(
        format="whisper.cpp",
        kind="whispercpp",
        use="transcribe",
        name=size_name(header),
        architecture="whisper",
        n_parameters=sum(
            prod(size if isinstance(size, int) else numbers[size] for size in shape)
            for shape in shapes
        ),
        n_bytes=n_bytes,
        quantisation=quantisation,
        tensor_types={quantisation: n_bytes},
        n_ctx=header.n_text_ctx,
        n_layers=header.n_audio_layer + header.n_text_layer,
        n_embd=header.n_audio_state,
        n_vocab=header.n_vocab,
        n_languages=header.n_languages,
    )


def size_name(header: WhisperHeader) -> str:
    """Name the model by its size; empty for a size that whisper has not."""
    size = _SIZES.get(header.n_audio_layer, "")
    if size == "large" and header.n_text_layer == _LAYERS_OF_TURBO:
        size = "large-v3-turbo"
    if not size:
        return ""
    return f"whisper-{size}" if header.is_multilingual else f"whisper-{size}.en"
