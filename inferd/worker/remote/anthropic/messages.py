"""A conversation as messages of blocks."""

import base64
from collections.abc import Iterator, Sequence

from inferd.backend.job import GenerateJob, Turn
from inferd.worker.remote.conversation.turns import (
    CallNumbers,
    arguments_of,
    split_images,
)

_Json = dict[str, object]


def write_messages(
    job: GenerateJob, turns: Sequence[Turn], images: Iterator[bytes]
) -> list[_Json]:
    """Translate a conversation; the results of the calls of one answer are one message.

    Args:
        job: with the marker of images.
        turns: after the system messages at the beginning.
        images: of these turns, as PNG, in their order.

    Raises:
        RefusedError: a result has no call, or the arguments of a call are no object.
    """
    calls = CallNumbers()
    messages: list[_Json] = []
    results: list[_Json] = []
    for turn in turns:
        blocks = [*_blocks(job, turn, images)]
        if turn.role == "tool":
            number, _ = calls.find(turn)
            block: _Json = {
                "type": "tool_result",
                "tool_use_id": _id(number),
                "content": blocks,
            }
            if not results:
                messages.append({"role": "user", "content": results})
            results.append(block)
            continue
        results = []
        blocks += _calls(turn, calls)
        messages.append({"role": turn.role, "content": blocks})
    return messages


def _calls(turn: Turn, calls: CallNumbers) -> Iterator[_Json]:
    for call in turn.calls:
        yield {
            "type": "tool_use",
            "id": _id(calls.add(call)),
            "name": call.name,
            "input": arguments_of(call),
        }


def _blocks(job: GenerateJob, turn: Turn, images: Iterator[bytes]) -> Iterator[_Json]:
    """Translate a text, with its images where their markers are; empty texts are none."""
    for part in split_images(job, turn.text, images):
        if isinstance(part, str):
            yield {"type": "text", "text": part}
        else:
            data = base64.b64encode(part).decode()
            source = {"type": "base64", "media_type": "image/png", "data": data}
            yield {"type": "image", "source": source}


def _id(number: int) -> str:
    """Write the id of a call, of letters, digits, ``_`` and ``-`` as the API wants it."""
    return f"toolu_{number}"
