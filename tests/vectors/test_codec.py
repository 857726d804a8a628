from collections.abc import Callable, Iterator
from typing import Final

import pytest

from inferd.errors import PeerError
from inferd.wire.codec import (
    decode_aside,
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.framing import LineSplitter
from protocol.matching import Frame, Matcher
from protocol.vector import Step, all_vectors, name_of, read_vector
from tests.cases import each_case

pytestmark = pytest.mark.slow

DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "v1": decode_generate,
    "v2": decode_blocks,
    "embed": decode_embed,
    "rerank": decode_rerank,
}
REFUSALS: Final = ({"$starts": "decode: "}, "frame exceeds 67108864 byte cap")
"""Messages of lines that are no request."""

Steps = list[Step]


def connections() -> Iterator[tuple[str, Steps]]:
    """Sort the steps of every vector by the connection that they are about."""
    for path in all_vectors():
        sorted_steps: dict[str, Steps] = {}
        for step in read_vector(path).exchange:
            sorted_steps.setdefault(step.on, []).append(step)
        for on, steps in sorted_steps.items():
            if steps[0].surface in DECODERS:
                yield f"{name_of(path)}:{on}", steps


def frames_of(steps: Steps) -> Iterator[bytes]:
    splitter = LineSplitter()
    splitter.feed(b"".join(step.data for step in steps))
    while (frame := splitter.next_frame()) is not None:
        yield frame
    if (frame := splitter.last_frame()) is not None:
        yield frame


def refusal_by_the_codec(steps: Steps) -> Frame | None:
    """Read each line as the daemon does; give the frame that refuses one, if any."""
    decode = DECODERS[steps[0].surface]
    takes_appends = decode is decode_blocks
    try:
        for frame in frames_of(steps):
            if decode_aside(frame, takes_appends=takes_appends) is None:
                decode(frame)
    except PeerError as error:
        code = error.code.value
        return {"type": "error", "id": "", "code": code, "message": error.message}
    return None


def refusal_in_the_vector(steps: Steps) -> Frame | None:
    for step in steps:
        if isinstance(step.value, dict) and step.value.get("message") in REFUSALS:
            return step.value
    return None


@each_case(
    "steps", [pytest.param(steps, id=name) for name, steps in connections()], shards=6
)
def test_lines_are_read_or_refused_as_the_vector_says(steps: Steps):
    expected, actual = refusal_in_the_vector(steps), refusal_by_the_codec(steps)
    if expected is None or actual is None:
        assert actual == expected
    else:
        assert Matcher().difference(expected, actual) is None
