"""What a backend can do, and with what."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Tokens and the like: as many as every reader of JSON can hold."""


class AcceleratorKind(StrEnum):
    """What the engine was built for."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    ROCM = "rocm"


class AcceleratorInfo(Struct, frozen=True, kw_only=True):
    """The accelerator an engine uses."""

    kind: AcceleratorKind = AcceleratorKind.CPU
    gpu_layers: Count = 0
    """Layers on the accelerator; 0 means that the CPU does all, whatever ``kind`` says."""


class BackendCapabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do."""

    generate: bool = True
    v2: bool = False
    vision: bool = False
    audio: bool = False
    video: bool = False
    tools: bool = False
    thinking: bool = False
    structure: bool = False
    """Whether it can hold an answer to a grammar, a schema or a call."""
    embed: bool = False
    rerank: bool = False
    transcribe: bool = False
    """Whether it writes speech down."""
    audio_sample_rate: Count = 0
    """Samples a second that sound must have; 0 where it takes none."""
    accelerator: AcceleratorInfo = AcceleratorInfo()
    cpu_variant: str = ""
    """Which of the library's variants for processors it runs; empty where it has none."""
    n_ctx: Count = 0
    """Tokens one request may take, prompt and answer together; 0 where it has no bound."""
    n_embd: Count = 0
    """Numbers of one vector, where it embeds."""
    n_slots: Count = 0
    """Requests that can run at once; 0 where it has no bound."""
    cache_type_k: str = ""
    """How the keys of its KV cache are kept, where it has one for answers."""
    cache_type_v: str = ""
    """How the values are."""
    model: str = ""
    """The model's own name."""
    dialect: str = ""
    """The family whose way of writing prompts and calls it follows."""
