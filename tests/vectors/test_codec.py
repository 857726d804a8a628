from collections.abc import Iterator

import msgspec
import pytest

from inferd.errors import InvalidRequestError, PeerError
from inferd.resolve import resolve_generate
from inferd.server.reply import error_frame
from inferd.wire.codec import decode_request, decode_response, decode_status
from inferd.wire.framing import LineSplitter
from tests.vectors.vector import (
    FOLDERS,
    Frame,
    Step,
    expectations,
    matches,
    read_vectors,
    sample,
)

pytestmark = pytest.mark.slow

VECTORS = read_vectors(*FOLDERS)
REQUESTS = [
    (name, connection, steps)
    for name, vector in VECTORS.items()
    for connection, steps in vector.connections().items()
    if connection.startswith("v1")
]
STATUSES = [
    (name, frame)
    for name, vector in VECTORS.items()
    for connection, steps in vector.connections().items()
    if connection.startswith("admin")
    for frame in expectations(steps)
]


def frames_of(steps: list[Step]) -> Iterator[bytes]:
    splitter = LineSplitter()
    splitter.feed(b"".join(step.sent for step in steps))
    while (frame := splitter.next_frame()) is not None:
        yield frame
    if (frame := splitter.last_frame()) is not None:
        yield frame


def outcomes_of(steps: list[Step]) -> Iterator[Frame]:
    """Read each line as the daemon does: give its id, or the frame that refuses it."""
    try:
        for frame in frames_of(steps):
            request = decode_request(frame)
            try:
                resolve_generate(request, seed=0)
            except InvalidRequestError as error:
                yield msgspec.to_builtins(error_frame(request.id, error))
            else:
                yield {"id": request.id}
    except PeerError as error:
        yield msgspec.to_builtins(error_frame("", error))


def ends_of(steps: list[Step]) -> list[Frame]:
    """Give the frame that ends each answer, the last one perhaps unfinished."""
    frames = list(expectations(steps))
    return [each for each in frames[:-1] if each["type"] != "token"] + frames[-1:]


@pytest.mark.parametrize(
    "steps", [pytest.param(steps, id=f"{name}:{on}") for name, on, steps in REQUESTS]
)
def test_each_line_is_read_as_it_is_answered(steps: list[Step]):
    for outcome, end in zip(outcomes_of(steps), ends_of(steps), strict=True):
        if "code" in outcome:
            assert matches(end, outcome)
        else:
            assert matches(end["id"], outcome["id"])
            assert end.get("code") not in ("invalid_request", "frame_too_large")


def test_every_answer_can_be_read_by_a_client():
    frames = [frame for _, _, steps in REQUESTS for frame in expectations(steps)]
    assert len(frames) > 100
    for frame in frames:
        line = msgspec.json.encode(sample(frame))
        assert msgspec.to_builtins(decode_response(line)) == sample(frame)


def test_every_status_can_be_read_by_a_client():
    assert len(STATUSES) > 10
    for _, frame in STATUSES:
        line = msgspec.json.encode(sample(frame))
        assert decode_status(line).status == frame["status"]
