import numpy as np
import pytest

from inferd.limits.worker import OUTPUTS_PER_SLOT
from inferd.worker.backend import LoadError
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.memory.breakdown import breakdown
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.worker.llama.running import answer, job, load, vectors

pytestmark = pytest.mark.model

TOKENS = [1, 300, 301, 302]


class Room:
    """A context, and a batch to fill."""

    def __init__(self, model, n_slots=2) -> None:
        self.n_vocab = model.n_vocab
        self.context = LlamaContext(
            model, n_ctx=64, n_slots=n_slots, n_batch=32, n_threads=1
        )
        self.batch = Batch(32)

    def decode(self, tokens, *, at=0, sequence=0) -> int:
        self.batch.clear()
        first = self.batch.add(tokens, at=at, sequence=sequence, n_logits=1)
        self.row = first + len(tokens) - 1
        return self.context.decode(self.batch.handle)

    def logits(self):
        return self.context.logits(self.row, self.n_vocab)


@pytest.fixture
def room(loaded) -> Room:
    return Room(loaded._model)


def test_logits_are_a_view_that_may_be_written_to(room):
    assert room.decode(TOKENS) == 0
    assert np.isfinite(room.logits()).all()
    room.logits()[7] = 99
    assert room.logits().argmax() == 7


def test_sequences_do_not_see_each_other(room):
    room.decode(TOKENS)
    alone = room.logits().copy()
    room.decode([1, 310, 320], sequence=1)
    assert np.abs(room.logits() - alone).max() > 0.1
    room.context.remove_cells(0)
    room.decode(TOKENS)
    assert (room.logits() == alone).all()


def test_a_sequence_can_be_taken_back_to_a_position(room):
    room.decode(TOKENS[:2])
    room.decode(TOKENS[2:], at=2)
    expected = room.logits().copy()
    room.context.remove_cells(0, after=2)
    room.decode([350, 351], at=2)
    room.context.remove_cells(0, after=2)
    room.decode(TOKENS[2:], at=2)
    assert (room.logits() == expected).all()


def test_all_can_be_forgotten(room):
    for sequence in (0, 1):
        room.decode(TOKENS, sequence=sequence)
    expected = room.logits().copy()
    room.context.clear_cells()
    room.decode(TOKENS)
    assert (room.logits() == expected).all()


def test_a_batch_is_cut_short_until_it_is_allowed_again(room):
    room.context.interrupt()
    assert room.decode(TOKENS) == 2
    assert room.decode(TOKENS) == 2
    room.context.clear_interrupt()
    assert room.decode(TOKENS) == 0


def test_threads_may_change_between_batches(room):
    room.decode(TOKENS)
    expected = room.logits().copy()
    room.context.remove_cells(0)
    room.context.use_threads(2)
    assert llama.llama_n_threads(room.context.handle) == 2
    assert room.decode(TOKENS) == 0
    assert room.logits() == pytest.approx(expected, abs=1e-4)


def test_threads_that_stay_write_nothing_to_the_log(room, capfd):
    room.context.use_threads(2)
    capfd.readouterr()
    room.context.use_threads(2)
    assert capfd.readouterr().err == ""


def test_without_memory_for_it_there_is_none(loaded, monkeypatch):
    monkeypatch.setattr(llama, "llama_init_from_model", lambda *_: None)
    with pytest.raises(LoadError, match="^no memory for a context of 64 tokens$"):
        Room(loaded._model)


def test_what_is_pooled_stays_as_it_was(loaded_bert):
    room = Room(loaded_bert._model)
    room.batch.add_for_pooling([2, 40, 41, 3], sequence=0)
    room.batch.add_for_pooling([2, 50, 3], sequence=1)
    assert room.context.decode(room.batch.handle) == 0
    first, second = (room.context.pooled(sequence, 64) for sequence in (0, 1))
    kept = first.copy()
    room.batch.clear()
    room.batch.add_for_pooling([2, 60, 3], sequence=0)
    room.context.decode(room.batch.handle)
    assert (first == kept).all()
    assert np.abs(first - second).max() > 0.1
    room.context.clear_cells()  # there is nothing to forget, and no harm in it


def test_a_batch_writes_nothing_to_the_log(encoder, capfd):
    vectors(encoder, "hello")
    assert capfd.readouterr().err == ""


# --- how the cache is kept --------------------------------------------------------------


@pytest.mark.parametrize("key", ["cache_type_k", "cache_type_v"])
def test_heads_that_do_not_fit_the_blocks_of_a_type_are_refused(tiny_model, key):
    with pytest.raises(LoadError, match=rf"{key} = q8_0.* of a multiple of 32 numbers"):
        load(tiny_model, **{key: "q8_0"})


def test_a_model_without_a_cache_takes_no_type_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.model.tiny.HEADS", 2)
    path = write_tiny_bert(tmp_path / "wide.gguf")
    with pytest.raises(LoadError, match="keeps no KV cache"):
        load(path, cache_type_v="q8_0")


def test_a_smaller_type_takes_less_and_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.model.tiny.HEADS", 2)
    path = write_tiny_model(tmp_path / "wide.gguf")
    bytes_of = {}
    for kind in ("f16", "q8_0"):
        backend, loaded = load(path, cache_type_k=kind, cache_type_v=kind)
        assert (loaded.capabilities.cache_type_k, loaded.capabilities.cache_type_v) == (
            kind,
            kind,
        )
        handle = backend._engine._context.handle
        bytes_of[kind] = breakdown(handle, backend._model.n_bytes).cache
        assert len(answer(backend, job()).pieces) > 1
    assert bytes_of["q8_0"] == bytes_of["f16"] * 34 // 64


def test_only_so_many_rows_of_results_have_room(loaded):
    model = loaded._model
    writer = LlamaContext.for_generation(model, n_tokens=64, n_slots=2, n_threads=1)
    encoder = LlamaContext.for_encoding(model, n_batch=32, n_threads=1)
    drafter = LlamaContext.for_drafting(model, n_tokens=64, n_slots=2, n_threads=1)
    assert (writer.n_outputs, encoder.n_outputs) == (2 * OUTPUTS_PER_SLOT, 32)
    assert (drafter.n_outputs, drafter.n_sequences) == (2, 2)
    writer.close()
    encoder.close()
