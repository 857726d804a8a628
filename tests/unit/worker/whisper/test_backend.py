import gc
import itertools
import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inferd.backend.job import EmbedJob, Media, TranscribeJob
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.ipc.worker import (
    AudioNeeded,
    CpuVariant,
    Failed,
    Loading,
    Paused,
    Transcribed,
    TranscriptEnded,
)
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import LoadError, PromptOverflowError, RefusedError
from inferd.worker.whisper.backend import WhisperBackend
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE
from tests.unit.worker.whisper.models import SMALL, write_model
from tests.unit.worker.whisper.running import (
    Heard,
    descriptor,
    hear,
    hear_live,
    job,
    load,
    noise,
    run,
    start,
)

pytestmark = pytest.mark.slow

SURE: dict[str, Any] = {"temperature": 2.0}


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> WhisperBackend:
    """A backend of many languages."""
    path = tmp_path_factory.mktemp("whisper") / "many.bin"
    return load(write_model(path, SMALL._replace(n_vocab=51_865)))[0]


def refusal(backend: WhisperBackend, samples=None, **fields) -> str:
    samples = noise(0.2) if samples is None else samples
    with pytest.raises(RefusedError) as caught:
        backend.prepare(job(samples, **fields), [descriptor(samples)])
    return str(caught.value)


def test_a_loaded_model_writes_down_speech_of_its_rate_and_nothing_else(small_model):
    _, loaded = load(small_model)
    able = loaded.capabilities
    assert (able.transcribe, able.audio, able.v2, able.generate) == (
        True,
        True,
        True,
        False,
    )
    assert (able.audio_sample_rate, able.n_slots, able.model) == (16_000, 3, "small")
    assert loaded.library.startswith("whisper.cpp ")


def test_a_file_that_the_store_has_named_has_the_name_of_its_size(tmp_path):
    (tmp_path / "blobs").mkdir()
    for n_layers, name in ((4, "whisper-tiny.en"), (2, "0" * 64)):
        path = tmp_path / "blobs" / ("0" * 64)
        header = SMALL._replace(n_audio_layer=n_layers)
        settings = WhisperCppSettings(name="w", model=str(write_model(path, header)))
        outline = WhisperBackend(settings, n_slots=1).outline(lambda _: None)
        assert outline.capabilities.model == name


def test_slots_are_those_of_the_share(small_model):
    settings = WhisperCppSettings(name="w", model=str(small_model))
    backend = WhisperBackend(settings, n_slots=4)
    assert backend.predict(lambda _: None).has_slots
    loaded = backend.load(lambda _: None, MemoryShare(n_slots=2, n_ctx=448))
    assert loaded.capabilities.n_slots == 2


def test_a_model_with_another_hash_is_refused(small_model):
    with pytest.raises(LoadError, match=f"^SHA-256 of {small_model} is "):
        load(small_model, sha256="0" * 64)


def test_a_load_says_how_far_it_is(small_model):
    reports: list[Loading | CpuVariant] = []
    settings = WhisperCppSettings(name="w", model=str(small_model))
    backend = WhisperBackend(settings, n_slots=1)
    backend.load(reports.append)
    assert reports == [
        Loading(phase=phase, path=str(small_model))
        for phase in ("checking_local", "mmap")
    ]


def test_a_sound_without_samples_is_refused(backend):
    assert refusal(backend, np.zeros(0, np.float32)) == 'attachment "a" has no samples'


def test_a_sound_of_another_rate_is_refused_with_both(backend):
    audio = Media(kind="audio", id="a", n_bytes=400, sample_rate=44_100)
    with pytest.raises(RefusedError) as caught:
        backend.prepare(TranscribeJob(audio=audio), [descriptor(noise(1))])
    assert "44100" in str(caught.value)
    assert "16000" in str(caught.value)


def test_a_sample_that_nobody_can_hear_is_refused_before_the_job_runs(backend):
    samples = noise(1)
    samples[7] = np.nan
    assert refusal(backend, samples) == 'attachment "a": sample 7 is not finite'


def test_a_language_that_a_model_does_not_know_is_refused_with_those_it_does(
    backend, many
):
    assert refusal(backend, language="de") == (
        "language 'de': the model knows en; auto detects it"
    )
    assert "the model knows en, zh, de, " in refusal(many, language="german")
    assert refusal(backend, translates=True) == "translate: the model knows only en"
    for each in (None, "auto", "de"):
        many.prepare(job(noise(0.2), language=each), [descriptor(noise(0.2))])


def test_a_prompt_that_a_model_takes_no_note_of_is_an_overflow(backend):
    samples = noise(0.2)
    fitting = job(samples, prompt=" hello" * 223)
    assert backend.prepare(fitting, [descriptor(samples)]).prompt_tokens == 223 + 10
    for prompt, at_least in ((" hello" * 224, False), ("x" * 4097, True)):
        with pytest.raises(PromptOverflowError) as caught:
            backend.prepare(job(samples, prompt=prompt), [descriptor(samples)])
        assert caught.value.prompt_tokens > 223
        assert (caught.value.n_ctx, caught.value.at_least) == (224, at_least)


def test_any_other_job_is_refused(backend):
    with pytest.raises(RefusedError, match="can only transcribe speech"):
        backend.prepare(EmbedJob(texts=["x"], dimensions=None, task=None))


def test_the_file_of_a_refused_job_is_left_to_the_caller(backend):
    fd = descriptor(noise(0.1))
    with pytest.raises(RefusedError):
        backend.prepare(job(noise(0.1), language="xx"), [fd])
    os.close(fd)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_job_that_is_prepared_and_never_run_leaves_no_file_open(backend, is_closed):
    fd = descriptor(noise(0.1))
    prepared = backend.prepare(job(noise(0.1)), [fd])
    os.fstat(fd)
    if is_closed:
        prepared.close()
    else:
        del prepared
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Free nothing that refers to itself: it may be long until it is looked for."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("seconds", [0.05, 0.2])
@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_job_that_is_over_leaves_nothing_behind(backend, is_dropped, seconds):
    fd = descriptor(noise(seconds))
    prepared = backend.prepare(job(noise(seconds), **SURE), [fd])
    is_there = weakref.ref(prepared)
    backend.start(1, prepared)
    del prepared
    if is_dropped:
        backend.drop(1)
    run(backend)
    assert is_there() is None
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.mark.usefixtures("no_collector")
def test_a_job_that_is_dropped_amid_its_sound_leaves_nothing_behind(backend):
    fd = descriptor(noise(0.2))
    prepared = backend.prepare(job(**SURE), [fd])
    is_there = weakref.ref(prepared)
    backend.start(1, prepared)
    del prepared
    backend.append_audio(1, 400, is_last=False)
    run(backend)  # it waits for more
    backend.drop(1)
    assert is_there() is None
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.mark.long
@pytest.mark.slow
def test_jobs_take_turns_and_hear_what_they_would_alone(backend):
    sounds = {ticket: noise(32, seed=ticket) for ticket in (1, 2)}
    alone = {ticket: hear(backend, each, **SURE) for ticket, each in sounds.items()}
    for ticket, samples in sounds.items():
        start(backend, ticket, samples, **SURE)
    order: list[int] = []
    together: dict[int, list[object]] = {ticket: [] for ticket in sounds}
    while backend.is_busy:
        for outcome in backend.step():
            assert isinstance(outcome, Transcribed | TranscriptEnded | Failed)
            if isinstance(outcome, Transcribed) and outcome.segments:
                order.append(outcome.ticket)
                together[outcome.ticket] += outcome.segments
    assert {ticket: each.segments for ticket, each in alone.items()} == together
    assert set(order[:2]) == {1, 2}


@pytest.mark.slow
def test_what_one_job_wants_is_not_what_the_next_one_gets(many):
    plain = hear(many, noise(3), language="de", **SURE)
    special = hear(
        many,
        noise(3),
        language="fr",
        translates=True,
        timestamps="word",
        prompt="hello",
        temperature=0.5,
        max_tokens=2,
    )
    assert special.end.language == "fr"
    again = hear(many, noise(3), language="de", **SURE)
    assert (again.segments, again.end.language) == (plain.segments, "de")


@pytest.mark.slow
def test_a_language_is_found_where_none_is_given(many):
    end = hear(many, noise(1), **SURE).end
    assert end.language in many._model.languages
    assert end.language_probability is not None
    assert 0 < end.language_probability <= 1
    assert hear(many, noise(1), language="de", **SURE).end.language_probability is None


@pytest.mark.slow
def test_a_job_is_dropped_in_the_middle_and_says_nothing_more(backend):
    for ticket in (1, 2):
        start(backend, ticket, noise(32), **SURE)
    backend.step()
    backend.interrupt(1)
    backend.drop(1)
    assert set(run(backend)) <= {2}
    start(backend, 3, noise(1), **SURE)
    backend.drop(3)
    assert not backend.is_busy


def test_a_job_that_computes_for_long_shows_that_it_gets_on(backend, monkeypatch):
    monkeypatch.setattr("inferd.worker.whisper.backend.SPEECH_STEP_S", 0.001)
    start(backend, 1, noise(1), temperature=2.0)
    outcomes = []
    while backend.is_busy:
        outcomes += backend.step()
    assert Transcribed(ticket=1) in outcomes
    assert isinstance(outcomes[-1], TranscriptEnded)
    assert outcomes[-1].audio_ms == 1000
    assert outcomes[-1].usage.prompt_tokens == SAMPLE_RATE // 320


# --- pauses -----------------------------------------------------------------------------


def steps_with_pauses(backend: WhisperBackend, every: int) -> tuple[Heard, int]:
    """Step one job to its end, paused after so many steps again and again."""
    heard, n_pauses = Heard(), 0
    for n in itertools.count(1):
        if not backend.is_busy:
            return heard, n_pauses
        if n % every == 0:
            backend.pause(1)
        for outcome in backend.step():
            if outcome == Paused(ticket=1):
                n_pauses += 1
                start(backend, 2, noise(0.3), **SURE)
                assert run(backend)[2].end.stop_reason == "end"
                backend.resume(1)
            elif not isinstance(outcome, AudioNeeded):
                heard.take(outcome)
    raise AssertionError


@pytest.mark.long
def test_a_recording_that_is_paused_between_its_chunks_is_heard_the_same(reciter):
    samples = noise(200)
    alone = hear(reciter, samples)
    start(reciter, 1, samples)
    heard, n_pauses = steps_with_pauses(reciter, every=2)
    assert heard.segments == alone.segments
    assert n_pauses > 2


@pytest.mark.long
def test_a_live_recording_that_is_paused_frees_its_room_and_is_heard_the_same(backend):
    samples = noise(4.5)
    alone = hear_live(backend, samples, SAMPLE_RATE, **SURE)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    heard = Heard()
    for end in range(SAMPLE_RATE, len(samples) + SAMPLE_RATE, SAMPLE_RATE):
        backend.append_audio(1, min(end, len(samples)) * 4, is_last=end >= len(samples))
        new, _ = steps_with_pauses(backend, every=1000)
        heard.segments += new.segments
        heard.ends += new.ends
        backend.pause(1)
        assert backend.is_busy is not bool(heard.ends)
        assert backend.step() == ([] if heard.ends else [Paused(ticket=1)])
        assert not backend.is_busy
        backend.resume(1)
    assert heard.text == alone.text
    assert heard.end.stop_reason == alone.end.stop_reason
