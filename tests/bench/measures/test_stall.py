from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import sides
from bench.lab import Lab, ModelFile
from bench.markdown import SIDES
from bench.measures import stall
from tests.bench.players import ScriptedClients, stand_in


@pytest.fixture
def lab():
    return Lab(ModelFile("m", Path("/m.gguf")), frozenset({"peer"}), n_threads=2)


def test_the_gap_is_that_of_the_stream_while_the_prompt_is_read(lab, monkeypatch):
    stand_in(monkeypatch, stall, "", None)
    with stall.STALL.open(lab) as take:
        taken = take(0)
    assert taken.values == {"inferd": 2000, "peer": 2000}
    assert taken.details["peer"]["prefill_tokens_per_s"] == 20


def test_llama_server_is_there_again_with_small_batches(lab, monkeypatch):
    @contextmanager
    def peer(_, *, n_batch, **__):
        yield SimpleNamespace(address=str(n_batch))

    @contextmanager
    def clients(_, address):
        yield ScriptedClients(address, [])

    monkeypatch.setattr(sides, "our_peer", peer)
    monkeypatch.setattr(sides, "clients_of", clients)
    with stall.STALL.open(lab) as take:
        assert set(take(0).values) == {"peer", "peer_small_batch"}
    assert str(sides.SMALL_BATCH) in SIDES["peer_small_batch"]
