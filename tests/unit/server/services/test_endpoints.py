from typing import Any, cast

import pytest

from inferd.admission.control import Admission
from inferd.backend.capabilities import BackendCapabilities
from inferd.config.settings import Config, ListenSettings, ModelsSettings
from inferd.server.connection.serve import Endpoint
from inferd.server.queue.requests import RequestQueue
from inferd.server.services.endpoints import BINDINGS, served_surfaces
from inferd.server.services.pipeline import Pipeline
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from tests.cases import each_case
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


def leaves(
    *able: BackendCapabilities, serve: bool | tuple[str, ...] = False, **listen: Any
) -> list[str]:
    config = Config(listen=ListenSettings(**listen), models=ModelsSettings(serve=serve))
    backends = [ScriptedBackend(capabilities=each) for each in able]
    return [each.socket for each in served_surfaces(config, backends)]


@each_case(
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
async def test_a_socket_exists_if_a_backend_can_serve_it(able, expected):
    assert leaves(*able) == expected


@pytest.mark.parametrize(
    ("switch", "leaf"), [("v2", V2), ("embed", EMBED), ("rerank", RERANK)]
)
async def test_a_disabled_endpoint_does_not_exist(switch, leaf):
    assert leaf in leaves(ABLE, **{switch: True})
    assert leaves(ABLE, **{switch: False}) == [
        each for each in REQUESTS if each != leaf
    ]


async def test_each_endpoint_decodes_its_own_requests():
    pipeline = Pipeline([], RequestQueue(Admission(max_active=1, max_queued=1)))
    found = [cast("Endpoint[Any]", each.endpoint(pipeline)) for each in BINDINGS]
    kinds = [type(each.decode(REQUESTS[each.socket]().rstrip())) for each in found]
    assert kinds == [GenerateRequest, BlocksRequest, EmbedRequest, RerankRequest]


def test_any_model_of_the_store_may_serve_any_socket_that_is_not_switched_off():
    assert leaves(serve=True) == [TEXT, V2, EMBED, RERANK]
    assert leaves(serve=True, v2=False, embed=False) == [TEXT, RERANK]
    assert leaves(CHAT, serve=("a",)) == [TEXT]
