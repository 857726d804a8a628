import pytest
from hypothesis import given, strategies as st

from inferd.ipc import Alive, Run
from inferd.job import GenerateJob, Sampling, Turn, Written
from inferd.pipe import (
    LENGTH_BYTES,
    BrokenLinkError,
    decode_from_preparer,
    decode_to_preparer,
    encode,
)
from inferd.preparing import (
    Broken,
    Ended,
    Learn,
    Ready,
    Took,
    Trying,
    Unwritable,
    Write,
    Wrote,
)

JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=3,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)
WRITTEN = Written(pieces=("a", "b"), open_thought="<think>", grammar="start:")


@pytest.mark.parametrize(
    "message",
    [
        Ready(),
        Took(ticket=1),
        Trying(ticket=1, where="grammar"),
        Wrote(ticket=1, written=WRITTEN, tried=(b"x" * 32,)),
        Unwritable(ticket=1, reason="no"),
        Broken(ticket=1, reason="oh"),
        Ended(code=-9),
    ],
)
def test_what_a_preparer_says_is_heard(message):
    assert decode_from_preparer(encode(message)[LENGTH_BYTES:]) == message


@pytest.mark.parametrize(
    "message",
    [
        Learn(facts=b"x", words=b"y"),
        Write(ticket=1, job=JOB, known=(b"x" * 32,)),
    ],
)
def test_what_it_is_told_is_understood(message):
    assert decode_to_preparer(encode(message)[LENGTH_BYTES:]) == message


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused(data):
    for decode in (decode_from_preparer, decode_to_preparer):
        try:
            decode(data)
        except BrokenLinkError:
            continue


@pytest.mark.parametrize(
    "message", [Alive(), Run(ticket=1), Wrote(ticket=1, written=WRITTEN, tried=(b"x",))]
)
def test_a_worker_is_no_preparer_and_a_digest_has_its_length(message):
    with pytest.raises(BrokenLinkError):
        decode_from_preparer(encode(message)[LENGTH_BYTES:])
