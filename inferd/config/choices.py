"""The values of settings that are one of a few words."""

from typing import Literal

LogLevel = Literal["debug", "info", "warning", "error"]
"""Severity of a log event."""

LoadTime = Literal["start", "demand"]
"""When a backend's model is loaded."""

ModelUse = Literal["generate", "embed", "rerank"]
"""Purpose of a model."""

CacheType = Literal["f16", "q8_0"]
"""Storage type of a number in the KV cache: 16 or 8.5 bits."""

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
"""Model families with their own format of prompts, reasoning and tool calls."""

Speculation = Literal["off", "lookup", "draft"]
"""Source of draft tokens in speculative decoding."""
