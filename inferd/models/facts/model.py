"""What is known of a model from its files alone."""

from typing import Literal

from msgspec import Struct

Use = Literal["generate", "embed", "rerank", "transcribe", "project"]
"""What a model is for; ``project``: its file goes with a model, and is none by itself."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What the headers of a model's files say of it; texts are as the files have them."""

    format: Literal["GGUF", "whisper.cpp"]
    kind: Literal["llamacpp", "whispercpp"]
    """Kind of the backends that load it."""
    use: Use
    name: str = ""
    """The model's own name; empty if it has none."""
    architecture: str
    n_parameters: int
    n_bytes: int
    """Bytes of its tensors."""
    quantisation: str
    """How its weights are stored, in ggml's words: ``Q4_K_M``."""
    tensor_types: dict[str, int]
    """Bytes of tensors by the name of their type, the most first."""
    n_ctx: int = 0
    """Tokens of the context that it was trained for; 0 if its file does not say."""
    n_layers: int = 0
    n_embd: int = 0
    """Numbers of a state."""
    n_vocab: int = 0
    n_experts: int = 0
    """Experts of a layer; 0 if it has none."""
    n_experts_used: int = 0
    n_languages: int = 0
    """Languages that it transcribes."""
    license: str = ""
    """As its file states it; empty if it does not."""
    n_parts: int = 1
    """Files that it is split into."""
    token_bytes: int = 0
    """Bytes of weights that are read for each token it generates; 0 if it generates none."""
