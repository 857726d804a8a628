import pytest

from inferd.backend.interface import Backend, Prepared
from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, Sampling, Turn
from inferd.errors import (
    EmbedUnsupportedError,
    InternalError,
    RerankUnsupportedError,
)
from tests.fakes.backend import ScriptedBackend

JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=1,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


def prepared(job):
    return Prepared(ticket=1, job=job, input_tokens=3)


async def test_embed_is_refused_by_default():
    job = EmbedJob(texts=["text"], dimensions=None, task=None)
    with pytest.raises(EmbedUnsupportedError):
        await Backend.embed(ScriptedBackend(), prepared(job))


async def test_rerank_is_refused_by_default():
    job = RerankJob(query="q", documents=["text"])
    with pytest.raises(RerankUnsupportedError):
        await Backend.rerank(ScriptedBackend(), prepared(job))


def test_v2_is_refused_by_default():
    with pytest.raises(InternalError, match=r'^backend "chat" does not advertise v2'):
        Backend.generate_v2(ScriptedBackend(name="chat"), prepared(JOB))


def test_an_interface_serves_nobody():
    with pytest.raises(TypeError, match="abstract"):
        Backend()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("is_ready", "reason", "state"),
    [(True, None, "ready"), (False, None, "loading"), (False, "on fire", "failed")],
)
def test_a_backend_has_a_state_in_one_word(is_ready, reason, state):
    backend = ScriptedBackend()
    if not is_ready:
        backend.go_down(reason)
    assert backend.state == state
