"""A projector alone, and against libmtmd's own way of reading its media."""

import ctypes

import numpy as np
import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.chunks import MediaChunk, MropeGrid
from inferd.worker.llama.multimodal.media import MediaData, read_medium
from inferd.worker.llama.multimodal.projector import Projector, ProjectorError
from tests.cases import each_case
from tests.model.tiny_projector import (
    N_IMAGE_TOKENS,
    N_SOUND_TOKENS,
    SAMPLE_RATE,
    write_tiny_projector,
)
from tests.unit.worker.llama.running import load
from tests.unit.worker.llama.showing import fds_of, picture, prepare, running, sound

pytestmark = pytest.mark.model

GRID = {"in_grid": True}


def made(path, model: LlamaModel) -> Projector:
    return Projector(ModelFile(path, "mmproj file"), model, n_threads=1)


@pytest.fixture(scope="module")
def model(loaded) -> LlamaModel:
    found: LlamaModel = loaded._model
    return found


@pytest.fixture(scope="module")
def projector(tiny_projector, model) -> Projector:
    return made(tiny_projector, model)


def sent(projector, medium) -> MediaData:
    [fd] = fds_of((medium,))
    return read_medium(medium.media, fd, projector.modalities)


def clip_of(projector, medium) -> MediaChunk:
    [clip] = projector.tokenize(sent(projector, medium))
    assert isinstance(clip, MediaChunk)
    return clip


def wanted() -> bool:
    return True


def test_it_takes_what_it_was_made_for(tmp_path, model):
    for kinds, senses in (
        ({}, (True, 0)),
        ({"sees": False, "hears": True}, (False, SAMPLE_RATE)),
        ({"hears": True}, (True, SAMPLE_RATE)),
    ):
        path = write_tiny_projector(tmp_path / "some.gguf", **kinds)
        assert made(path, model).modalities == senses


def test_a_medium_takes_as_many_places_as_it_has_vectors(projector, model):
    for medium, n_tokens in ((picture(), N_IMAGE_TOKENS), (sound(), N_SOUND_TOKENS)):
        clip = clip_of(projector, medium)
        vectors = projector.encode(clip, wanted)
        assert clip.n_tokens == n_tokens
        assert vectors.shape == (n_tokens, model.n_embd)


def test_long_sound_is_cut_into_parts(projector):
    parts = projector.tokenize(sent(projector, sound(seconds=70.0)))
    assert [part.n_tokens for part in parts] == [N_SOUND_TOKENS] * 3


@each_case("size", [(1, 1), (1, 200), (200, 1), (301, 57)])
def test_pictures_of_any_shape_that_is_let_in_are_read(projector, size):
    clip = clip_of(projector, picture(0, *size))
    assert np.isfinite(projector.encode(clip, wanted)).all()


@pytest.mark.parametrize("seconds", [0.1, 0.11, 29.99, 30.0, 30.01])
def test_sound_of_any_length_that_is_let_in_is_read(projector, seconds):
    for part in projector.tokenize(sent(projector, sound(seconds=seconds))):
        assert np.isfinite(projector.encode(part, wanted)).all()


def test_encoding_is_aborted_when_it_is_not_wanted_any_more(projector):
    n_seen = projector.n_progress
    clip = clip_of(projector, picture())
    assert projector.encode(clip, lambda: False) is None
    assert projector.n_progress == n_seen + 1
    assert projector.encode(clip, wanted) is not None


def test_vectors_that_are_no_numbers_are_an_error(tmp_path, model):
    path = write_tiny_projector(tmp_path / "broken.gguf", gain=np.inf)
    projector = made(path, model)
    with pytest.raises(ProjectorError, match="not finite"):
        projector.encode(clip_of(projector, picture()), wanted)


def test_a_projector_for_another_model_is_refused_with_both_widths(tmp_path, model):
    path = write_tiny_projector(tmp_path / "wide.gguf", text_width=96)
    with pytest.raises(LoadError) as caught:
        made(path, model)
    assert caught.value.reason == (
        "mmproj file: its embeddings have 96 dimensions, those of the model 64"
    )
    assert str(path) in str(caught.value)
    assert caught.value.is_broken_file


def test_places_in_a_grid_take_fewer_positions_than_they_are(tiny_grid, tmp_path):
    path = write_tiny_projector(tmp_path / "grid.gguf", in_grid=True)
    projector = made(path, load(tiny_grid)[0]._model)
    parts = projector.tokenize(sent(projector, picture(0, 140, 84)))
    [clip] = [part for part in parts if isinstance(part, MediaChunk)]
    assert (clip.n_tokens, clip.n_positions, clip.is_atomic) == (5 * 3, 5, True)
    time, row, column, _ = clip.positions(7)
    assert set(time) == {7}
    assert row.tolist() == [7] * 5 + [8] * 5 + [9] * 5
    assert column.tolist() == [7, 8, 9, 10, 11] * 3


def test_positions_that_are_none_of_the_prompts_are_refused(
    tiny_projector, model, monkeypatch
):
    nowhere = np.zeros((4, 2), np.int32)
    still = MropeGrid(nowhere, nowhere, 2)
    cut = [MediaChunk(2, is_atomic=True, grid=still)]
    monkeypatch.setattr(Projector, "_cut", lambda *_: cut)
    with pytest.raises(LoadError, match="depends on the text before"):
        made(tiny_projector, model)


def test_a_projector_that_minds_the_text_before_is_refused(
    tiny_projector, model, monkeypatch
):
    def cut(projector, text, bitmap):
        return [MediaChunk(len(text), is_atomic=False)]

    monkeypatch.setattr(Projector, "_cut", cut)
    with pytest.raises(LoadError, match="depends on the text before"):
        made(tiny_projector, model)


@pytest.mark.parametrize("model_name", ["tiny_model", "tiny_grid"])
@pytest.mark.parametrize("kind", [{}, {"at_once": True}, {"hears": True}, GRID])
def test_media_are_read_as_libmtmd_reads_them(request, tmp_path, model_name, kind):
    path = write_tiny_projector(tmp_path / "some.gguf", **kind)
    backend = load(request.getfixturevalue(model_name), mmproj=str(path))[0]
    medium = sound() if "hears" in kind else picture(0, 140, 84)
    prompt = prepare(backend, "look * at it", medium, max_tokens=1)
    source = prompt.spans[0].chunk.source
    assert source is not None
    chunk, owner = source
    backend.start(1, prompt)
    list(running(backend))
    own = backend._engine._context.logits(-1, backend._model.n_vocab).copy()
    theirs = by_libmtmd(backend, prompt, chunk)
    assert np.allclose(own, theirs, rtol=1e-5, atol=1e-6)
    assert owner.handle


def by_libmtmd(backend, prompt, chunk):
    """Read a prompt with the library's own helper; give the last token's scores."""
    model, projector = backend._model, backend._engine._media_pipeline._projector
    context = LlamaContext.for_generation(model, n_tokens=512, n_slots=1, n_threads=1)
    [span] = prompt.spans
    decode(context, prompt.tokens[: span.begin], at=0)
    n_past = ctypes.c_int32(span.begin)
    assert not projector._mtmd.mtmd_helper_eval_chunk_single(
        *(projector._handle, context.handle, chunk, n_past),
        *(0, 512, False, ctypes.byref(n_past)),
    )
    assert n_past.value == span.begin + span.chunk.n_positions
    decode(context, prompt.tokens[span.end :], at=n_past.value)
    return context.logits(-1, model.n_vocab)


def decode(context, tokens, *, at):
    batch = Batch(len(tokens))
    batch.add(tokens, at=at, sequence=0, n_logits=1)
    assert context.decode(batch.handle) == 0
