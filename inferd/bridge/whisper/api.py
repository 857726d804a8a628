"""The record of the API of whisper.cpp's server."""

from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.recordings.transcript import TEXT_MEDIA_TYPES
from inferd.bridge.translation.api import Api, FormOperation, Operation
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.query import NO_QUERY
from inferd.bridge.translation.question import Asked, Question
from inferd.bridge.whisper.inference import InferenceForm, ask_inference
from inferd.bridge.whisper.tables import INFERENCE, LOAD


class WhisperFailure(Struct, frozen=True):
    """The body of a failure."""

    error: str


def failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    return msgspec.json.encode(WhisperFailure(str(failure)))


def refuse_load(_body: bytes, _asked: Asked) -> Question:
    """Refuse to load a model from a path.

    Raises:
        BridgeError: always.
    """
    [model] = LOAD.fields
    raise BridgeError(Reason.UNSUPPORTED, f"model: {model.note}", param="model")


WHISPER: Final = Api(
    name="whisper",
    prefixes=("/inference", "/load"),
    operations=(
        FormOperation(
            "/inference",
            ask_inference,
            INFERENCE,
            body=InferenceForm,
            texts=TEXT_MEDIA_TYPES,
        ),
        Operation("/load", refuse_load, LOAD),
    ),
    query=NO_QUERY,
    error_body=failure_body,
    failure=WhisperFailure,
)
