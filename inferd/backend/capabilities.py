"""Capabilities of backends."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A count: at most what every JSON reader can represent."""


class AcceleratorKind(StrEnum):
    """The accelerator that the engine was built for."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    ROCM = "rocm"


class AcceleratorInfo(Struct, frozen=True, kw_only=True):
    """The accelerator that an engine uses."""

    kind: AcceleratorKind = AcceleratorKind.CPU
    gpu_layers: Count = 0
    """Layers on the accelerator; 0 means that the CPU does all, whatever ``kind`` is."""


class BackendCapabilities(Struct, frozen=True, kw_only=True):
    """The capabilities of a backend."""

    generate: bool = True
    v2: bool = False
    vision: bool = False
    audio: bool = False
    video: bool = False
    tools: bool = False
    thinking: bool = False
    structure: bool = False
    """Whether it can constrain an answer to a grammar, a schema or a call."""
    embed: bool = False
    rerank: bool = False
    transcribe: bool = False
    """Whether it transcribes speech."""
    audio_sample_rate: Count = 0
    """Sample rate in Hz that audio must have; 0 if it takes none."""
    accelerator: AcceleratorInfo = AcceleratorInfo()
    cpu_variant: str = ""
    """The variant of the library's CPU code that it runs; empty if there are none."""
    n_ctx: Count = 0
    """Tokens that one request may take, prompt and answer together; 0 for no bound."""
    n_embd: Count = 0
    """Length of a vector, if it embeds."""
    n_slots: Count = 0
    """Requests that can run at once; 0 for no bound."""
    cache_type_k: str = ""
    """Type of the keys in its KV cache, if it generates."""
    cache_type_v: str = ""
    """Type of the values."""
    model: str = ""
    """The model's own name."""
    dialect: str = ""
    """The dialect: the model family's format of prompts and calls."""
