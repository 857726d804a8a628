"""Failures in Ollama's form."""

import msgspec
from msgspec import Struct

from inferd.bridge.translation.failures import BridgeError


class OllamaFailure(Struct, frozen=True):
    """The body of a failure."""

    error: str


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    return msgspec.json.encode(OllamaFailure(str(failure)))


def failure_line(failure: BridgeError) -> bytes:
    """Return the line that ends a stream that fails."""
    return failure_body(failure) + b"\n"
