from dataclasses import replace
from pathlib import Path

import pytest

from bench.lab import Lab, ModelFile
from bench.load.scene import Answer
from bench.load.speech import ServerError
from bench.peers.server_py import configuration
from bench.sides import chat_sides, check_alike, peer_options, tables_for
from bench.templates import TEMPLATES
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.parse import parse_config

PATH = Path("/a/m.gguf")


@pytest.fixture(params=[None, "gemma3"])
def lab(request):
    return Lab(ModelFile("m", PATH, request.param), frozenset(), n_threads=3)


@pytest.mark.parametrize("is_patient", [False, True])
def test_servers_are_idle_before_they_are_measured_if_there_is_time(
    lab, is_patient, monkeypatch
):
    waited: list[None] = []
    monkeypatch.setattr("bench.sides.wait_until_idle", lambda: waited.append(None))
    with chat_sides(replace(lab, is_patient=is_patient), n_slots=1, n_ctx=512):
        assert bool(waited) is is_patient


def test_the_daemons_configuration_has_the_same_work(lab):
    config = parse_config(tables_for(lab, n_slots=8, n_ctx=512))
    [backend] = config.backend
    assert isinstance(backend, LlamaCppSettings)
    assert config.admission.max_active == 8
    assert (backend.model, backend.n_ctx, backend.n_threads) == (str(PATH), 512, 3)
    assert backend.chat_template == lab.model.family


def test_the_peer_has_room_for_as_many_requests_of_that_size(lab):
    options = peer_options(lab, n_slots=8, n_ctx=512)
    assert options[:4] == ["--parallel", "8", "--ctx-size", "4096"]
    assert options[4:6] == ["--n-gpu-layers", "0"]
    assert options[6:] == (
        ["--chat-template", TEMPLATES["gemma3"]] if lab.model.family else []
    )


def test_the_peer_has_its_own_batches_unless_small_ones_are_asked_for(lab):
    options = peer_options(lab, n_slots=2, n_ctx=512)
    small = peer_options(lab, n_slots=2, n_ctx=512, n_batch=64)
    assert small == [*options, "--batch-size", "64", "--ubatch-size", "64"]


def test_so_has_the_bindings_server(lab):
    model = configuration(lab, n_slots=8, n_ctx=512)["model"]
    assert (model["n_ctx"], model["n_seq_max"], model["threads"]) == (4096, 8, 3)
    assert ("chat_template" in model) == bool(lab.model.family)


def counted(n_prompt):
    return Answer(sent_at=0, times=[], lengths=[], text="", n_prompt=n_prompt)


@pytest.mark.parametrize("peer", [100, 104, 0])
def test_sides_that_read_the_same_prompt_can_be_compared(peer):
    check_alike({"inferd": counted(100), "peer": counted(peer)})
    check_alike({})


@pytest.mark.parametrize("peer", [3, 94, 106])
def test_a_side_that_reads_another_prompt_spoils_the_measure(peer):
    with pytest.raises(ServerError, match="different prompts"):
        check_alike({"inferd": counted(100), "peer": counted(peer)})
