import pytest

from inferd.backend import (
    AcceleratorInfo,
    AcceleratorKind,
    Backend,
    BackendCapabilities,
    Prepared,
)
from inferd.errors import EmbedUnsupportedError, InternalError
from inferd.job import GenerateJob, Sampling
from inferd.wire.requests import ChatMessage
from tests.fakes.backend import ScriptedBackend

JOB = GenerateJob(
    messages=[ChatMessage("user", "hi")],
    max_tokens=1,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


def test_a_backend_writes_text_and_no_more_unless_it_says_so():
    able = BackendCapabilities()
    assert able.generate
    others = (able.v2, able.vision, able.audio, able.video, able.tools, able.thinking)
    assert not any((*others, able.embed))
    assert able.accelerator == AcceleratorInfo(kind=AcceleratorKind.CPU, gpu_layers=0)


async def test_embeddings_are_refused_by_who_makes_none():
    with pytest.raises(EmbedUnsupportedError):
        await ScriptedBackend().embed(["text"])


def test_typed_blocks_are_refused_by_who_writes_none():
    prepared = Prepared(ticket=1, job=JOB, prompt_tokens=3)
    with pytest.raises(InternalError, match=r'^backend "chat" does not advertise v2'):
        ScriptedBackend(name="chat").generate_v2(prepared)


def test_an_interface_serves_nobody():
    with pytest.raises(TypeError, match="abstract"):
        Backend()  # type: ignore[abstract]
