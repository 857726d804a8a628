import pytest
from hypothesis import given, strategies as st

from inferd.backend.job import GenerateJob, RenderedJob, Sampling, Turn
from inferd.ipc.encoding import (
    LENGTH_BYTES,
    MalformedMessageError,
    decode_from_preparer,
    decode_to_preparer,
    encode,
)
from inferd.ipc.preparer import (
    CompilingGrammar,
    Configure,
    ForkExited,
    JobReceived,
    Ready,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
)
from inferd.ipc.worker import Heartbeat, Run
from tests.cases import each_case

JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=3,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)
WRITTEN = RenderedJob(pieces=("a", "b"), open_thought="<think>", grammar="start:")


@each_case(
    "message",
    [
        Ready(),
        JobReceived(ticket=1),
        CompilingGrammar(ticket=1, field="grammar"),
        Rendered(ticket=1, rendered=WRITTEN, compiled_grammars=(b"x" * 32,)),
        RenderRefused(ticket=1, reason="no"),
        RenderFailed(ticket=1, reason="oh"),
        ForkExited(code=-9),
    ],
)
def test_messages_from_a_preparer_are_decoded(message):
    assert decode_from_preparer(encode(message)[LENGTH_BYTES:]) == message


@pytest.mark.parametrize(
    "message",
    [
        Configure(prompt_format=b"x", token_table=b"y"),
        Render(ticket=1, job=JOB, known_grammars=(b"x" * 32,)),
    ],
)
def test_messages_to_a_preparer_are_decoded(message):
    assert decode_to_preparer(encode(message)[LENGTH_BYTES:]) == message


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data):
    for decode in (decode_from_preparer, decode_to_preparer):
        try:
            decode(data)
        except MalformedMessageError:
            continue


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(),
        Run(ticket=1),
        Rendered(ticket=1, rendered=WRITTEN, compiled_grammars=(b"x",)),
    ],
)
def test_a_worker_is_no_preparer_and_a_digest_has_its_length(message):
    with pytest.raises(MalformedMessageError):
        decode_from_preparer(encode(message)[LENGTH_BYTES:])
