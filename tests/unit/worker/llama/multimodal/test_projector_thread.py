"""The projector's thread: what is wanted, what is dropped, what fails."""

import threading
from itertools import islice

import numpy as np
import pytest

from inferd.ipc.worker import Failed
from inferd.worker.backend import LoadError
from inferd.worker.llama.multimodal.cache import MediaCache
from inferd.worker.llama.multimodal.projector import Projector
from inferd.worker.llama.multimodal.projector_thread import ProjectorThread
from tests.model.tiny_projector import write_tiny_projector
from tests.unit.worker.llama.running import job, load, take_step
from tests.unit.worker.llama.showing import ask, n_encoded, picture, prepare, running

pytestmark = pytest.mark.model

MOST_STEPS = 1000
"""In which a thread that gets on has been seen to, however rarely it runs."""


class Gate:
    """Holds a projector up until it is opened, as a large one would be."""

    def __init__(self, backend, monkeypatch):
        self.is_open = threading.Event()
        self.n_begun = 0
        encode = Projector.encode

        def held(projector, clip, is_wanted):
            self.n_begun += 1
            while is_wanted() and not self.is_open.wait(0.001):
                projector.n_progress += 1
            return encode(projector, clip, is_wanted)

        monkeypatch.setattr(Projector, "encode", held)


@pytest.fixture
def gate(seer, monkeypatch):
    gate = Gate(seer, monkeypatch)
    yield gate
    gate.is_open.set()


def test_answers_continue_while_an_image_is_encoded(seer, gate):
    seer.start(1, prepare(seer, "*", picture(70), cache="off"))
    seer.start(2, seer.prepare(job("hello", max_tokens=8)))
    pieces: list[tuple[int, bytes]] = []
    while len(pieces) < 8:
        pieces += take_step(seer).pieces
    assert {ticket for ticket, _ in pieces} == {2}
    gate.is_open.set()
    assert {ticket for step in running(seer) for ticket, _ in step.pieces} == {1}


def test_threads_of_a_projector_that_computes_are_told_and_no_others(seer, gate):
    projecting = seer._engine._media_pipeline.projector_thread
    assert projecting.n_threads == 0
    seer.start(1, prepare(seer, "*", picture(69), cache="off"))
    while not gate.n_begun:
        take_step(seer)
    assert projecting.n_threads == projecting._projector.n_threads > 0
    gate.is_open.set()
    assert list(running(seer))
    while projecting._current:
        projecting.wait(1.0)
    assert projecting.n_threads == 0


def test_encoding_an_image_counts_as_progress(seer, gate, monkeypatch):
    monkeypatch.setattr("inferd.worker.llama.multimodal.prefill.MEDIA_WAIT_S", 0.01)
    seer.start(1, prepare(seer, "*", picture(71), cache="off"))
    while not gate.n_begun:
        take_step(seer)
    steps = (take_step(seer).n_read for _ in range(MOST_STEPS))
    got_on = list(islice(filter(None, steps), 20))
    assert got_on[-5:] == [1] * 5  # long after its text was read
    gate.is_open.set()
    assert list(running(seer))


def test_a_dropped_jobs_encoding_is_aborted(seer, gate):
    before = n_encoded(seer)
    seer.start(1, prepare(seer, "*", picture(72), cache="off"))
    while not gate.n_begun:
        take_step(seer)
    seer.interrupt(1)
    seer.drop(1)
    assert not seer.is_busy
    gate.is_open.set()
    assert ask(seer, "*", picture(73), cache="off").n_encoded == 1
    assert n_encoded(seer) == before + 1


def test_queued_media_of_a_dropped_job_are_not_encoded(seer, gate):
    for ticket, seed in ((1, 74), (2, 75)):
        seer.start(ticket, prepare(seer, "*", picture(seed), cache="off"))
    while not gate.n_begun:
        take_step(seer)
    seer.drop(2)
    gate.is_open.set()
    assert list(running(seer))
    assert gate.n_begun == 1


def test_an_image_encoded_as_nan_fails_only_its_job(tiny_model, tmp_path, monkeypatch):
    path = write_tiny_projector(tmp_path / "broken.gguf", gain=np.inf)
    monkeypatch.setattr(ProjectorThread, "self_test", lambda _: None)
    backend = load(tiny_model, mmproj=str(path))[0]
    backend.start(1, prepare(backend, "*", picture()))
    backend.start(2, backend.prepare(job("hello", max_tokens=4)))
    outcomes = [each for _ in range(200) if backend.is_busy for each in backend.step()]
    [failed] = [each for each in outcomes if isinstance(each, Failed)]
    assert (failed.ticket, failed.by_request) == (1, True)
    assert failed.reason == (
        'attachment "picture 0": the projector\'s output is not finite'
    )


def test_a_projector_that_gives_no_numbers_is_not_loaded(tiny_model, tmp_path):
    path = write_tiny_projector(tmp_path / "broken.gguf", gain=np.nan)
    with pytest.raises(LoadError, match="mmproj self-test failed: .* not finite"):
        load(tiny_model, mmproj=str(path))


def test_a_self_test_takes_no_longer_than_it_may(seer, monkeypatch):
    monkeypatch.setattr(
        "inferd.worker.llama.multimodal.projector_thread.MEDIA_TEST_S", 0.0
    )
    projector = seer._engine._media_pipeline._projector
    n_seen = projector.n_progress
    ProjectorThread(projector, MediaCache(0)).self_test()
    assert projector.n_progress == n_seen + 2  # a look at a picture, and at a sound


def test_one_job_takes_what_was_made_for_another_meanwhile(seer, gate):
    both = [prepare(seer, "*", picture(76)), prepare(seer, "and *", picture(76))]
    for ticket, prepared in enumerate(both):
        seer.start(ticket, prepared)
    gate.is_open.set()
    assert list(running(seer))
    assert gate.n_begun == 1
