"""What settings of the configuration may be that are words."""

from typing import Literal

Level = Literal["debug", "info", "warning", "error"]
"""How much an event of the log matters."""

Use = Literal["generate", "embed", "rerank"]
"""What a model is for."""

CacheType = Literal["f16", "q8_0"]
"""How a number of the KV cache is kept: 16 bits, or 8.5."""

Family = Literal[
    "chatml",
    "qwen",
    "qwen3-coder",
    "gemma3",
    "gemma4",
    "llama3",
    "mistral",
    "granite",
    "deepseek",
    "harmony",
    "generic",
]
"""The dialects that models write prompts, thoughts and calls in."""

Speculation = Literal["off", "lookup", "draft"]
"""What guesses tokens ahead of the model."""
