"""Media taken into the context part by part, beside others."""

import pytest

from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.decoder import INTERRUPTED, DecodeError
from inferd.worker.llama.model.context import LlamaContext
from tests.model.tiny_projector import (
    N_IMAGE_TOKENS,
    N_SOUND_TOKENS,
    write_tiny_projector,
)
from tests.unit.worker.llama.running import collect, load
from tests.unit.worker.llama.showing import ask, picture, prepare, running, sound

pytestmark = pytest.mark.model

TEXT = "look * at it"


@pytest.fixture
def slow(monkeypatch):
    """Read two tokens at once, of texts and media."""
    for name in ("chunk", "chunk_alone"):
        monkeypatch.setattr(ChunkSizer, name, 2)


@pytest.fixture(scope="module")
def at_once(tiny_model, tmp_path_factory):
    """A backend that reads pictures as a whole."""
    path = tmp_path_factory.mktemp("models") / "gemma.gguf"
    return load(tiny_model, mmproj=str(write_tiny_projector(path, at_once=True)))[0]


def read_in(backend, medium):
    """Ask; give the answer, and how far the prompt was read in each step."""
    prepared = prepare(backend, TEXT, medium, cache="off", wants_progress=True)
    backend.start(1, prepared)
    answer = collect(running(backend))[1]
    return answer.text, answer.prefilled, prepared.spans[0]


def test_a_medium_is_read_in_parts_that_hold_others_up_no_longer_than_text(seer, slow):
    text, places, span = read_in(seer, sound())
    inside = [place for place in places if span.begin < place <= span.end]
    assert inside == [*range(span.begin + 2, span.end + 1, 2)]
    assert places == sorted(set(places))
    assert text


def test_reading_in_parts_changes_no_answer(seer, monkeypatch):
    whole = ask(seer, TEXT, sound(), cache="off").answer.text
    monkeypatch.setattr(ChunkSizer, "chunk_alone", 4)
    assert ask(seer, TEXT, sound(), cache="off").answer.text == whole


def test_places_that_see_one_another_are_read_at_once(at_once, slow):
    _, places, span = read_in(at_once, picture())
    assert span.end - span.begin == N_IMAGE_TOKENS
    assert [place for place in places if span.begin < place <= span.end] == [span.end]


def test_a_grid_that_is_larger_than_a_batch_is_read_in_one_step(
    tiny_grid, tmp_path, monkeypatch
):
    path = write_tiny_projector(tmp_path / "grid.gguf", in_grid=True)
    backend = load(tiny_grid, mmproj=str(path))[0]
    large = picture(0, 140, 84)
    whole = read_in(backend, large)[0]
    monkeypatch.setattr(
        "inferd.worker.llama.multimodal.prefill.PREFILL_CHUNK_TOKENS", 4
    )
    text, places, span = read_in(backend, large)
    assert text == whole
    assert span.end - span.begin == 15
    assert [place for place in places if span.begin < place <= span.end] == [span.end]


def test_tokens_after_a_grid_are_removed_by_their_positions(
    tiny_grid, tmp_path, monkeypatch
):
    path = write_tiny_projector(tmp_path / "grid.gguf", in_grid=True)
    backend = load(tiny_grid, mmproj=str(path))[0]
    expected = ask(backend, TEXT, picture(), cache="off").answer.text
    decode, codes = LlamaContext.decode, [0, 0, INTERRUPTED]  # before, picture, behind

    def cut_short(context, batch):
        code = decode(context, batch)
        return codes.pop(0) if codes else code

    monkeypatch.setattr(LlamaContext, "decode", cut_short)
    assert ask(backend, TEXT, picture(), cache="off").answer.text == expected
    assert codes == []


def test_media_of_two_prompts_take_turns(seer, slow):
    both = [
        prepare(seer, TEXT, sound(), cache="off", wants_progress=True) for _ in range(2)
    ]
    for ticket, asked in enumerate(both, 1):
        seer.start(ticket, asked)
    while any(span.chunk.vectors is None for each in both for span in each.spans):
        pass  # until both are readable
    [span] = both[0].spans
    turns = [
        ticket
        for step in running(seer)
        for ticket, place in step.prefilled
        if span.begin < place <= span.end
    ]
    assert turns in ([1, 2] * (N_SOUND_TOKENS // 2), [2, 1] * (N_SOUND_TOKENS // 2))


@pytest.mark.parametrize("name", ["seer", "at_once"])
def test_a_part_that_was_interrupted_is_read_again(request, name, monkeypatch):
    backend = request.getfixturevalue(name)
    expected = ask(backend, TEXT, picture(), cache="off").answer.text
    fail_at_vectors(monkeypatch, INTERRUPTED)
    assert ask(backend, TEXT, picture(), cache="off").answer.text == expected


def test_a_part_that_cannot_be_read_ends_the_worker(seer, monkeypatch):
    fail_at_vectors(monkeypatch, -1)
    with pytest.raises(DecodeError, match="gave -1 for 4 tokens"):
        ask(seer, TEXT, picture(), cache="off")
    seer.drop(1)


def fail_at_vectors(monkeypatch, code):
    """Have the first batch of vectors give a code."""
    decode = LlamaContext.decode
    left = [code]

    def failing(context, batch):
        return left.pop() if left and batch.embd else decode(context, batch)

    monkeypatch.setattr(LlamaContext, "decode", failing)
