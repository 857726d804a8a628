import math

import numpy as np
import pytest

from inferd.backend.job import Media
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.settings import LimitSettings
from inferd.doctor.backend import check_worker
from inferd.doctor.check import Verdict
from inferd.ipc.worker import Step
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import RefusedError
from inferd.worker.llama.multimodal.media import Modalities, read_medium
from inferd.worker.llama.multimodal.projector_thread import ProjectorThread
from tests.fakes.gguf_bytes import TEXT, gguf, pair, sound, tensor, text
from tests.fakes.loading import failed_load
from tests.fakes.starting import program_of
from tests.model.tiny import write_tiny_model
from tests.model.tiny_projector import write_tiny_projector
from tests.unit.worker.llama.running import answer, collect, job, load
from tests.unit.worker.llama.showing import (
    ANN,
    BEN,
    MARKER,
    ask,
    picture,
    prepare,
    shown,
)

SHARE = MemoryShare(n_slots=1, n_ctx=256)
SENSES = Modalities(vision=True, sample_rate=16_000)
CLIP = pair(b"general.architecture", TEXT, text(b"clip"))
ATTACKS = {
    "no projector": sound(),
    "half a projector": gguf(pairs=[CLIP])[:40],
    "a shape that overflows": gguf(
        pairs=[CLIP], tensors=[tensor(b"t", [2**33, 2**31])]
    ),
}


@pytest.fixture(scope="module")
def seer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    projector = write_tiny_projector(directory / "projector.gguf")
    return load(write_tiny_model(directory / "m.gguf"), mmproj=str(projector))[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_projector_that_attacks_its_parser_never_reaches_it(name, short_dir):
    model = write_tiny_model(short_dir / "m.gguf")
    path = short_dir / "p.gguf"
    path.write_bytes(ATTACKS[name])
    phases, reason = await failed_load(
        LlamaCppSettings(name="chat", model=str(model), mmproj=str(path))
    )
    assert reason.startswith(f"mmproj file {path}: ")
    assert "mmap" not in phases


@pytest.mark.slow
def test_a_projector_is_loaded_in_the_sandbox(short_dir):
    model = write_tiny_model(short_dir / "m.gguf")
    projector = write_tiny_projector(short_dir / "p.gguf", hears=True)
    settings = LlamaCppSettings(name="m", model=str(model), mmproj=str(projector))
    finding = check_worker(
        program_of(settings), settings, LimitSettings(), lambda _: SHARE
    )
    assert finding.verdict is Verdict.OK
    assert "accepts images, accepts audio of 16000 Hz" in finding.detail


@pytest.mark.parametrize("size", [(0, 9), (2**16, 2**16), (2**31, 2**31), (1, 10_000)])
def test_pictures_that_libmtmd_would_not_survive_are_not_even_read(size):
    width, height = size
    media = Media(
        kind="image", id="a", width=width, height=height, n_bytes=3 * math.prod(size)
    )
    with pytest.raises(RefusedError, match="pixels"):
        read_medium(media, -1, SENSES)


@pytest.mark.parametrize("n_samples", [0, 1, 2**40])
def test_sound_that_libmtmd_would_not_survive_is_not_even_read(n_samples):
    media = Media(kind="audio", id="a", sample_rate=16_000, n_bytes=4 * n_samples)
    with pytest.raises(RefusedError, match="of audio"):
        read_medium(media, -1, SENSES)


@pytest.mark.model
@pytest.mark.parametrize("spelled", ["<__media__>", "<media >", MARKER[1:]])
def test_no_text_of_a_client_moves_a_picture(seer, spelled):
    plain = prepare(seer, "* look", picture())
    other = prepare(seer, f"* {spelled} look", picture())
    assert [each.begin for each in other.spans] == [each.begin for each in plain.spans]


@pytest.mark.model
def test_media_that_take_too_long_to_read_are_refused(seer, monkeypatch):
    monkeypatch.setattr("inferd.worker.llama.multimodal.pipeline.MEDIA_READ_S", 0.0)
    prepare(seer, "* look", picture())
    with pytest.raises(RefusedError, match="the attachments takes over 0 s"):
        prepare(seer, "* and * look", picture(), picture())


@pytest.mark.model
def test_a_prompt_with_more_marks_than_media_is_refused(seer):
    asked = shown("* and *", picture())
    with pytest.raises(RefusedError, match="renders 2 of 1 attachments"):
        seer.prepare(asked, [])


@pytest.mark.model
def test_nobody_is_told_by_speed_what_another_user_has_shown(seer):
    ask(seer, "look *", picture(5), owner=ANN)
    other = ask(seer, "look *", picture(5), owner=BEN)
    assert (other.n_encoded, other.reuse.cached_tokens) == (1, 0)


@pytest.mark.model
def test_a_picture_of_no_numbers_spoils_nobody_elses_answer(tmp_path, monkeypatch):
    path = write_tiny_projector(tmp_path / "broken.gguf", gain=np.inf)
    monkeypatch.setattr(ProjectorThread, "self_test", lambda _: None)
    broken = load(write_tiny_model(tmp_path / "m.gguf"), mmproj=str(path))[0]
    expected = answer(broken, job("hello")).text
    for beside in (False, True):
        if beside:
            broken.start(1, prepare(broken, "look *", picture()))
        broken.start(2, broken.prepare(job("hello")))
        outcomes = [
            each for _ in range(999) if broken.is_busy for each in broken.step()
        ]
        took = [each for each in outcomes if isinstance(each, Step)]
        assert collect(iter(took))[2].text == expected
        assert len(outcomes) - len(took) == beside  # that one failed


def test_a_medium_says_who_it_is_in_one_line():
    media = Media(kind="image", id='a"\nb', n_bytes=0)
    with pytest.raises(RefusedError) as caught:
        read_medium(media, -1, SENSES)
    assert "\n" not in str(caught.value)
