import pytest

from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.model.memory import predict_memory
from tests.unit.worker.whisper.models import SMALL

MB = 1_000_000
NETWORKS = {384: 36, 512: 45, 768: 63, 1024: 81, 1280: 100}
"""Megabytes that the library says a network of so many numbers is computed in, its scores
apart."""


@pytest.fixture
def demand_of(small_model):
    def of(**numbers):
        file = WhisperFile(small_model)
        file.header = SMALL._replace(**numbers)
        return predict_memory(file, 2)

    return of


def test_weights_are_as_large_as_their_file(small_model, demand_of):
    demand = demand_of()
    assert demand.weights == small_model.stat().st_size
    assert (demand.n_ctx, demand.is_set, demand.has_slots) == (448, True, True)
    assert demand.own > 16 * MB


@pytest.mark.parametrize("n_state", NETWORKS)
def test_what_a_chunk_is_computed_in_is_what_the_library_says(demand_of, n_state):
    smallest = demand_of(n_text_state=1, n_audio_state=1).compute.per_slot
    grown = demand_of(n_text_state=n_state, n_audio_state=n_state).compute.per_slot
    network = grown - smallest + 8 * MB
    assert 0.9 * NETWORKS[n_state] * MB <= network <= 1.1 * NETWORKS[n_state] * MB


def test_slots_have_caches_of_their_own(demand_of):
    base = {"n_text_state": 512, "n_text_layer": 6}
    need_of_two = demand_of(**base).need(2, 448)
    need_of_one = demand_of(**base).need(1, 448)
    assert need_of_two.cache == 2 * need_of_one.cache
    # As the library says for this model: 6.3 MB for text, 18.9 MB for sound, 3.1 MB more.
    assert need_of_one.cache == pytest.approx((7 * 6.29 + 18.87 + 3.15) * MB, rel=0.01)


def test_all_that_a_job_computes_in_is_added_up(demand_of):
    network, scores, samples, spectrum = 9.0, 94.6, 115.2, 20.2
    assert demand_of().compute.per_slot == pytest.approx(
        (network + scores + samples + spectrum) * MB, rel=0.01
    )
    assert demand_of(n_vocab=1).compute.per_slot == pytest.approx(
        (network + samples + spectrum) * MB, rel=0.01
    )


def test_ten_minutes_of_sound_are_in_it(demand_of):
    assert demand_of().need(1, 448).compute > 600 * 16_000 * 4 * 3
