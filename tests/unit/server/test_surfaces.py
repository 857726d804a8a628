from typing import Any

import pytest

from inferd.admission.gate import Admission
from inferd.capabilities import BackendCapabilities
from inferd.config import Listen
from inferd.server.entrance import Entrance
from inferd.server.surfaces import surfaces
from inferd.server.turns import Turns
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from tests.fakes.backend import ABLE, ScriptedBackend
from tests.fakes.streams import REQUESTS

TEXT, V2 = "infer.sock", "infer.v2.sock"
EMBED, RERANK = "infer.embed.sock", "infer.rerank.sock"

SPEECH = BackendCapabilities(generate=False, transcribe=True)
NOTHING = BackendCapabilities(generate=False)
CHAT = BackendCapabilities()
CHAT_V2 = BackendCapabilities(v2=True)
EMBEDDER = BackendCapabilities(generate=False, embed=True, n_embd=8)
RERANKER = BackendCapabilities(generate=False, rerank=True)


def leaves(*able: BackendCapabilities, **listen: Any) -> list[str]:
    backends = [ScriptedBackend(capabilities=each) for each in able]
    entrance = Entrance(backends, Turns(Admission(max_active=1, max_queued=1)))
    return [each.socket for each in surfaces(Listen(**listen), backends, entrance)]


@pytest.mark.parametrize(
    ("able", "expected"),
    [
        ([], []),
        ([NOTHING], []),
        ([CHAT], [TEXT]),
        ([CHAT_V2], [TEXT, V2]),
        ([EMBEDDER], [EMBED]),
        ([RERANKER], [RERANK]),
        ([BackendCapabilities(generate=False, v2=True)], []),
        ([SPEECH], [V2]),
        ([SPEECH, CHAT], [TEXT, V2]),
        ([EMBEDDER, CHAT], [TEXT, EMBED]),
        ([NOTHING, EMBEDDER, RERANKER, CHAT_V2], [TEXT, V2, EMBED, RERANK]),
        ([ABLE], [TEXT, V2, EMBED, RERANK]),
    ],
)
async def test_a_socket_is_there_where_a_backend_can_serve_it(able, expected):
    assert leaves(*able) == expected


@pytest.mark.parametrize(
    ("switch", "leaf"), [("v2", V2), ("embed", EMBED), ("rerank", RERANK)]
)
async def test_a_surface_that_is_turned_off_is_not_there(switch, leaf):
    assert leaf in leaves(ABLE, **{switch: True})
    assert leaves(ABLE, **{switch: False}) == [
        each for each in REQUESTS if each != leaf
    ]


async def test_each_surface_reads_its_own_requests():
    backends = [ScriptedBackend()]
    entrance = Entrance(backends, Turns(Admission(max_active=1, max_queued=1)))
    found = surfaces(Listen(), backends, entrance)
    kinds = [type(each.decode(REQUESTS[each.socket]().rstrip())) for each in found]
    assert kinds == [GenerateRequest, BlocksRequest, EmbedRequest, RerankRequest]
