"""Capabilities of backends."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A count: at most what every JSON reader can represent."""


MAX_DEVICE_NAME_CHARS: Final = 512
"""Characters of the names of all accelerators of a backend."""

DeviceName = Annotated[str, Meta(max_length=MAX_DEVICE_NAME_CHARS)]


class AcceleratorKind(StrEnum):
    """A kind of accelerator; ``cpu`` where there is none."""

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
    device_name: DeviceName = ""
    """The products' names, if there are any."""
    vram_total_bytes: Count = 0
    """Memory of all of them; 0 if it is not known."""
    vram_free_bytes: Count = 0
    """Free memory of all of them when the model had been loaded."""


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
    token_ids: bool = False
    """With ``remote``: whether it takes prompts of token ids, and tells those of answers, as
    every local model that generates does."""
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
    remote: bool = False
    """Whether another engine answers, perhaps on another machine."""
    by_name_only: bool = False
    """Whether it gets only requests that name it."""
    dialect: str = ""
    """The dialect: the model family's format of prompts and calls."""
