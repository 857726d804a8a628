import os

import pytest

from inferd import surfaces
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.server.services.v1 import V1Service
from inferd.server.services.v2 import V2Service
from inferd.wire.blocks import BlocksRequest, Message, TextBlock
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import REQUESTS
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import collect, job, load, steps, take_step

pytestmark = pytest.mark.model

V1 = GenerateRequest(messages=[ChatMessage("user", "hi")])
V2 = BlocksRequest(messages=[Message("user", [TextBlock("hi")])])
SECRET = "the keeper of the lighthouse hid the key under the third stone " * 4
MINE, OTHERS = 1000, 1001


@pytest.fixture
def backend(tmp_path):
    return load(write_tiny_model(tmp_path / "tiny.gguf"))[0]


def asked(backend, owner):
    request = job(SECRET, cache="auto", owner=owner, max_tokens=30)
    return backend.prepare(request)


def save_idle(backend):
    """Move what is idle to host memory."""
    slots = backend._engine.decoder._slots
    for each in slots._prefixes.idle:
        slots._empty(each.slot)


def found(backend, owner):
    """Tell what a user's prompt finds in the cache."""
    backend.start(2, asked(backend, owner))
    took = list(steps(backend))
    return next(
        each.reuse for step in took for each in step.started if each.ticket == 2
    )


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_another_user_sent_is_not_found(backend, is_saved):
    backend.start(1, asked(backend, OTHERS))
    collect(steps(backend))
    if is_saved:
        save_idle(backend)
    assert (found(backend, MINE).cached_tokens, found(backend, OTHERS).miss) == (
        0,
        None,
    )


def test_what_another_user_is_being_answered_is_not_found(backend):
    backend.start(1, asked(backend, OTHERS))
    take_step(backend)
    assert found(backend, MINE).miss == "no_prefix"


@pytest.mark.parametrize(
    ("service", "asking"), [(V1Service, V1), (V2Service, V2)], ids=["v1", "v2"]
)
def test_a_job_is_the_user_s_whom_the_socket_names(service, asking):
    activity = RequestContext(
        Peer(pid=1, uid=MINE, gid=1), surfaces.INFER, "r", arrived_at=0
    )
    plan = service(None).resolve(asking, 1, activity)
    assert plan.job.owner == MINE
    assert not {"owner", "uid"} & {*asking.__struct_fields__}


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock"])
async def test_users_who_share_the_uid_of_unmapped_users_have_nothing_in_common(
    leaf, monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.server.identity.peer.overflow_uid", os.getuid)
    backend = ScriptedBackend()
    async with LocalServer(backend).opened() as server:
        for _ in range(2):
            async with server.connect(leaf) as client:
                for _ in range(2):
                    await client.send(REQUESTS[leaf]())
                    await client.answer()
    first, again, *others = [each.owner for each in backend.jobs]
    assert first == again
    assert first not in others
