"""A conversation as contents of parts."""

import base64
from collections.abc import Iterator, Sequence
from typing import Final

from inferd.backend.job import GenerateJob, Turn
from inferd.config.kinds.gemini import GeminiSettings
from inferd.worker.backend import RefusedError
from inferd.worker.remote.conversation.turns import (
    CallNumbers,
    arguments_of,
    split_images,
)

_Json = dict[str, object]
SKIPPED_SIGNATURE: Final = "skip_thought_signature_validator"
"""In place of the signature of a call.

Source: https://ai.google.dev/gemini-api/docs/thought-signatures, "FAQs".
"""
_RESULT: Final = "output"
"""The key of a result, by ``google.genai.types.FunctionResponse``."""


def write_contents(
    settings: GeminiSettings,
    job: GenerateJob,
    turns: Sequence[Turn],
    images: Iterator[bytes],
) -> list[_Json]:
    """Translate a conversation; the results of the calls of one answer are one content.

    Args:
        settings: of the backend.
        job: with the marker of images.
        turns: after the system messages at the beginning.
        images: of these turns, as PNG, in their order.

    Raises:
        RefusedError: a system message stands among the others, a result has no call or has
            images, or the arguments of a call are no object.
    """
    calls = CallNumbers()
    contents: list[_Json] = []
    results: list[_Json] = []
    for turn in turns:
        if turn.role == "system":
            raise RefusedError(
                f'messages: backend "{settings.name}" takes system messages at the '
                "beginning alone"
            )
        parts = [*_parts(job, turn, images)]
        if turn.role == "tool":
            if not results:
                contents.append({"role": "user", "parts": results})
            results.append(_result(turn, calls, parts))
            continue
        results = []
        parts += _calls(settings, turn, calls)
        role = "model" if turn.role == "assistant" else "user"
        contents.append({"role": role, "parts": parts})
    return contents


def _calls(settings: GeminiSettings, turn: Turn, calls: CallNumbers) -> Iterator[_Json]:
    for call in turn.calls:
        calls.add(call)
        part: _Json = {"functionCall": {"name": call.name, "args": arguments_of(call)}}
        if settings.skip_signatures:
            part["thoughtSignature"] = SKIPPED_SIGNATURE
        yield part


def _result(turn: Turn, calls: CallNumbers, parts: Sequence[_Json]) -> _Json:
    if any("text" not in part for part in parts):
        raise RefusedError("messages: the result of a tool has images")
    _, name = calls.find(turn)
    return {"functionResponse": {"name": name, "response": {_RESULT: turn.text}}}


def _parts(job: GenerateJob, turn: Turn, images: Iterator[bytes]) -> Iterator[_Json]:
    """Translate a text, with its images where their markers are; empty texts are none."""
    for part in split_images(job, turn.text, images):
        if isinstance(part, str):
            yield {"text": part}
        else:
            data = base64.b64encode(part).decode()
            yield {"inlineData": {"mimeType": "image/png", "data": data}}
