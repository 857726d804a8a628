import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.limits.engine import PROMPT_CACHE_MB
from inferd.limits.worker import OUTPUTS_PER_SLOT
from inferd.memory.plan import MemoryDemand
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import open_files
from inferd.worker.llama.library.binding import load_library
from inferd.worker.llama.memory.breakdown import Breakdown, breakdown
from inferd.worker.llama.memory.predict import (
    _on_devices,
    _Point,
    measure_layers,
    predict,
)
from inferd.worker.llama.model.context import LlamaContext
from tests.model.tiny import (
    KV_HEADS,
    LAYERS,
    write_tiny_bert,
    write_tiny_mamba,
    write_tiny_model,
)

pytestmark = pytest.mark.model

F16_CELL = LAYERS * 2 * KV_HEADS * 16 * 2
"""Bytes of a token in the tiny model's KV cache."""


def predicted(path, *, n_slots=2, **settings) -> MemoryDemand:
    made = LlamaCppSettings(name="tiny", model=str(path), **settings)
    return predict(open_files(made), made, n_slots, lambda: None).demand


def test_a_writer_demands_a_context_for_each_slot(tiny_model, loaded):
    demand = predicted(tiny_model)
    assert (demand.n_ctx, demand.is_set, demand.has_slots) == (512, False, True)
    assert (demand.cache.fixed, demand.cache.per_token) == (0, F16_CELL)
    assert 0 <= demand.weights - loaded._model.n_bytes < 1000
    assert demand.own > 10**7
    assert (demand.store, demand.accelerator) == (PROMPT_CACHE_MB * 2**20, 0)


def test_the_prediction_matches_a_real_context(tiny_model, loaded):
    model = loaded._model
    demand = predicted(tiny_model, n_slots=3)
    context = LlamaContext.for_generation(
        model, n_tokens=3 * 512, n_slots=3, n_threads=1
    )
    real = breakdown(context.handle, model.n_bytes)
    context.close()
    need = demand.need(3, 512)
    results = 3 * OUTPUTS_PER_SLOT * model.n_vocab * 4
    assert need.cache == real.cache
    assert real.compute + results <= need.compute <= 1.2 * (real.compute + results)


def with_draft(path, draft, **settings) -> MemoryDemand:
    return predicted(path, speculation="draft", draft_model=str(draft), **settings)


def test_a_draft_model_is_demanded_with_its_weights_and_its_context(tiny_model):
    alone, both = predicted(tiny_model), with_draft(tiny_model, tiny_model)
    assert both.weights == 2 * alone.weights
    assert both.cache.per_token == 2 * alone.cache.per_token
    assert both.own > alone.own
    assert both.store == alone.store


def test_a_draft_model_keeps_its_numbers_whole_whatever_the_model_does(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tests.model.tiny.HEADS", 2)
    path = write_tiny_model(tmp_path / "wide.gguf")
    alone, halved = predicted(path), predicted(path, cache_type_k="q8_0")
    both = with_draft(path, path, cache_type_k="q8_0")
    extra = both.cache.per_token - halved.cache.per_token
    assert extra == alone.cache.per_token > halved.cache.per_token


def test_the_prediction_of_a_draft_model_matches_its_context(tiny_model, loaded):
    model = loaded._model
    alone = predicted(tiny_model, n_slots=3).need(3, 512)
    both = with_draft(tiny_model, tiny_model, n_slots=3).need(3, 512)
    context = LlamaContext.for_drafting(model, n_tokens=3 * 512, n_slots=3, n_threads=1)
    real = breakdown(context.handle, model.n_bytes)
    context.close()
    results = 3 * model.n_vocab * 4
    assert both.cache - alone.cache == real.cache
    extra = both.compute - alone.compute
    assert real.compute + results <= extra <= 1.2 * (real.compute + results)


def test_a_draft_model_that_cannot_draft_is_refused_before_loading(
    tiny_model, tmp_path
):
    with pytest.raises(LoadError, match="it does not generate text"):
        with_draft(tiny_model, write_tiny_bert(tmp_path / "bert.gguf"))


def test_a_model_without_speculation_support_is_refused_before_loading(tmp_path):
    with pytest.raises(LoadError, match="speculation = 'lookup': the model has a"):
        predicted(write_tiny_mamba(tmp_path / "mamba.gguf"), speculation="lookup")


@pytest.mark.parametrize("name", ["PREPARER_TOKEN_BYTES", "GRAMMAR_TOKEN_BYTES"])
def test_a_text_models_memory_includes_grammars(
    tiny_model, tiny_bert, loaded, monkeypatch, name
):
    before = [predicted(path).own for path in (tiny_model, tiny_bert)]
    monkeypatch.setattr(f"inferd.worker.llama.memory.predict.{name}", 10**9)
    after = [predicted(path).own for path in (tiny_model, tiny_bert)]
    writer, encoder = (b - a for a, b in zip(before, after, strict=True))
    assert writer // 10**9 in {loaded._model.n_vocab - 1, loaded._model.n_vocab}
    assert encoder < 10**8


def test_a_configured_context_is_demanded_as_it_stands(tiny_model):
    demand = predicted(tiny_model, n_ctx=4096)
    assert (demand.n_ctx, demand.is_set) == (4096, True)


def test_an_encoder_demands_one_context_and_no_longer_than_its_model_s(tiny_bert):
    demand = predicted(tiny_bert, n_ctx=9000)
    assert (demand.n_ctx, demand.has_slots) == (512, False)
    assert demand.need(7, 512).cache == 0
    assert demand.need(7, 512) == demand.need(1, 512)


@pytest.mark.slow
def test_a_context_beyond_all_measure_is_predicted_and_not_tried(tiny_model):
    demand = predicted(tiny_model, n_ctx=10**9)
    assert demand.need(2, 10**9).cache >= 2 * 10**9 * F16_CELL


def test_a_context_that_llama_cpp_cannot_count_is_refused(tiny_model):
    with pytest.raises(LoadError, match=r"n_ctx = 2000000000: 2 slots of it are more"):
        predicted(tiny_model, n_ctx=2 * 10**9)


def test_a_projectors_memory_includes_the_media_cache(tiny_model, tiny_projector):
    alone = predicted(tiny_model)
    seeing = predicted(tiny_model, mmproj=str(tiny_projector), media_cache_mb=3)
    more = seeing.weights - alone.weights
    n_bytes = tiny_projector.stat().st_size
    assert 0.8 * n_bytes < more < 2**26
    assert 3 * 2**20 < seeing.own - alone.own + 2**24 < 2**26  # itself, as it grows
    assert seeing.store == alone.store


def test_a_projector_for_a_model_that_does_not_write_is_refused(
    tiny_bert, tiny_projector
):
    with pytest.raises(
        LoadError, match="the model does not generate text, so it takes no projector"
    ):
        predicted(tiny_bert, mmproj=str(tiny_projector))


@pytest.mark.parametrize(("cache_type", "row_bytes"), [("f16", 32 * 2), ("q8_0", 34)])
def test_the_largest_tensor_of_the_cache_is_known_before_a_context_is_made(
    tmp_path, monkeypatch, cache_type, row_bytes
):
    load_library()
    monkeypatch.setattr("tests.model.tiny.HEADS", 2)
    monkeypatch.setattr("tests.model.tiny.KV_HEADS", 1)
    path = write_tiny_model(tmp_path / "wide.gguf")
    made = LlamaCppSettings(
        name="tiny", model=str(path), n_ctx=256, cache_type_k=cache_type
    )
    layers = measure_layers(open_files(made), made, 3, lambda: None)
    values = 32 * 2
    assert layers.row_bytes == max(row_bytes, values)
    assert layers.cache_tensor_bytes == 3 * 256 * layers.row_bytes
    assert predicted(path, n_slots=3).cache.per_token == LAYERS * 2 * values


def test_the_bytes_on_a_device_of_a_context_that_is_too_large_to_measure_are_drawn_on():
    def point(n_slots, n_tokens):
        n_bytes = 1000 + 7 * n_slots + 3 * n_tokens
        return _Point(n_slots, n_tokens, Breakdown(0, 0, 0, 0, {5: n_bytes}), 0)

    points = [point(1, 100), point(1, 400), point(4, 400)]
    assert _on_devices(points, 4, 400) == {5: 1000 + 28 + 1200}
    assert _on_devices(points, 4, 4000) == {5: 1000 + 28 + 12000}
