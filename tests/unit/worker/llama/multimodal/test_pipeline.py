"""Pictures and sound in prompts, with real projectors of a tiny size."""

import hashlib
import os

import pytest
from msgspec.structs import replace

from inferd.limits.worker import CACHED_PREFIX_TOKENS_MIN
from inferd.worker.backend import LoadError, PromptOverflowError, RefusedError
from inferd.worker.llama.generate.decoder import INTERRUPTED
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.multimodal.projector_thread import ProjectorThread
from tests.model.tiny import write_tiny_mamba, write_tiny_model
from tests.model.tiny_projector import (
    N_IMAGE_TOKENS,
    N_SOUND_TOKENS,
    SAMPLE_RATE,
    write_tiny_projector,
)
from tests.unit.worker.llama.running import (
    GREEDY,
    N_SLOTS,
    collect,
    job,
    load,
    loaded_once,
)
from tests.unit.worker.llama.showing import (
    ANN,
    BEN,
    MARKER,
    ask,
    fds_of,
    picture,
    prepare,
    running,
    shown,
    sound,
)

pytestmark = pytest.mark.model

QUESTION = "what is to be seen in this picture: * say it"
N_BEFORE = 16
"""Tokens that are found again at least: all before the picture, or more."""


@pytest.fixture(params=["in parts", "at once", "in a grid"])
def fresh(request, tiny_model, tiny_grid, tmp_path):
    """A backend that has seen nothing, and reads pictures in one of three ways."""
    is_grid = request.param == "in a grid"
    path = write_tiny_projector(
        tmp_path / "projector.gguf",
        at_once=request.param == "at once",
        in_grid=is_grid,
    )
    model = tiny_grid if is_grid else tiny_model
    with loaded_once(model, mmproj=str(path)) as backend:
        yield backend


def text(backend, question, *media, **fields):
    return ask(backend, question, *media, cache="off", **fields).answer.text


def test_it_says_what_it_takes(tiny_model, tiny_projector):
    able = load(tiny_model, mmproj=str(tiny_projector))[1].capabilities
    assert (able.vision, able.audio, able.audio_sample_rate) == (
        True,
        True,
        SAMPLE_RATE,
    )
    able = load(tiny_model)[1].capabilities
    assert (able.vision, able.audio, able.audio_sample_rate) == (False, False, 0)


def test_a_projector_with_another_hash_is_refused(tiny_model, tiny_projector):
    pinned = {"mmproj": str(tiny_projector), "mmproj_sha256": "0" * 64}
    with pytest.raises(LoadError) as caught:
        load(tiny_model, **pinned)
    assert caught.value.reason == "mmproj file: its SHA-256 is not the expected one"
    pinned["mmproj_sha256"] = hashlib.sha256(tiny_projector.read_bytes()).hexdigest()
    assert load(tiny_model, **pinned)[1].capabilities.vision


def test_a_projector_that_changes_while_it_is_loaded_is_refused(
    tiny_model, tiny_projector, tmp_path, monkeypatch
):
    path = tmp_path / "p.gguf"
    path.write_bytes(tiny_projector.read_bytes())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(ProjectorThread, "self_test", lambda _: path.touch())
    with pytest.raises(LoadError, match=f"^mmproj file {path}: it changed while"):
        load(tiny_model, mmproj=str(path), mmproj_sha256=digest)


def test_a_picture_changes_the_answer(fresh):
    answers = {text(fresh, QUESTION, picture(seed)) for seed in range(3)}
    assert len(answers) == 3
    assert text(fresh, QUESTION, picture(0)) in answers


def test_a_sound_changes_the_answer(seer):
    answers = {text(seer, QUESTION, sound(pitch)) for pitch in (220.0, 440.0, 3000.0)}
    assert len(answers) == 3


def test_media_count_as_tokens_of_the_prompt(seer):
    alone = ask(seer, QUESTION.replace("*", "")).answer.end.usage.prompt_tokens
    for media, n_tokens in ((picture(), N_IMAGE_TOKENS), (sound(), N_SOUND_TOKENS)):
        usage = ask(seer, QUESTION, media).answer.end.usage
        assert usage.prompt_tokens == alone + n_tokens


@pytest.mark.parametrize("other", [picture(2), sound()], ids=["picture", "sound"])
def test_media_are_read_in_their_order(seer, other):
    a, b = picture(1), other
    assert text(seer, "* and *", a, b) != text(seer, "* and *", b, a)
    assert text(seer, "* and *", a, b) == text(seer, "* and *", a, b)


def test_a_second_question_about_a_picture_reads_it_from_the_cache(fresh):
    first = ask(fresh, QUESTION, picture())
    second = ask(fresh, QUESTION + " again", picture())
    assert (first.n_encoded, second.n_encoded) == (1, 0)
    assert first.reuse.cached_tokens == 0
    assert second.reuse.cached_tokens > N_BEFORE + N_IMAGE_TOKENS
    again = text(fresh, QUESTION + " again", picture())
    assert second.answer.text == again


def test_a_prompt_with_another_image_is_not_a_prefix(fresh):
    first = ask(fresh, QUESTION, picture(1))
    other = ask(fresh, QUESTION, picture(2))
    assert other.n_encoded == 1
    assert other.reuse.cached_tokens < first.answer.end.usage.prompt_tokens - N_BEFORE
    assert other.answer.text == text(fresh, QUESTION, picture(2))


def test_a_picture_elsewhere_in_a_prompt_is_encoded_once(fresh):
    ask(fresh, "* is one", picture())
    other = ask(fresh, "and something else entirely: *", picture())
    assert other.reuse.cached_tokens < N_BEFORE
    assert other.n_encoded == 0


def test_users_do_not_share_pictures(fresh):
    ask(fresh, QUESTION, picture(), owner=ANN)
    other = ask(fresh, QUESTION, picture(), owner=BEN)
    assert (other.reuse.cached_tokens, other.n_encoded) == (0, 1)


def test_nothing_is_kept_of_a_picture_where_that_is_not_wanted(fresh):
    for cache in ("off", "discard"):
        assert ask(fresh, QUESTION, picture(), cache=cache).n_encoded == 1
    ask(fresh, QUESTION, picture())
    assert ask(fresh, QUESTION, picture(), cache="discard").n_encoded == 0
    assert ask(fresh, QUESTION, picture(), cache="off").n_encoded == 1


def test_the_same_picture_twice_in_a_prompt_is_encoded_once(fresh):
    both = ask(fresh, "* and *", picture(), picture())
    assert both.n_encoded == 1


def test_answers_in_one_batch_are_equal_to_single_ones(seer):
    questions = [("*", picture(1)), ("and *", sound()), ("or * then", picture(2))]
    alone = [text(seer, *each) for each in questions]
    for ticket, each in enumerate(questions):
        seer.start(ticket, prepare(seer, *each, cache="off"))
    answers = collect(running(seer))
    assert [answers[ticket].text for ticket in range(3)] == alone


def test_a_medium_larger_than_the_context_is_an_overflow_with_all_its_tokens(
    tiny_model, tiny_projector
):
    backend = load(tiny_model, mmproj=str(tiny_projector), n_ctx=64)[0]
    n_text = prepare(backend, "").prompt_tokens
    media = [picture()] * 12
    with pytest.raises(PromptOverflowError) as caught:
        prepare(backend, "*" * 12, *media)
    assert caught.value.prompt_tokens == n_text + 12 * N_IMAGE_TOKENS
    assert caught.value.n_ctx == 64


def test_markers_that_clients_spell_stay_text(seer):
    for spelled in ("<__media__>", "<|image|>", MARKER[:-1]):
        prepared = prepare(seer, f"{spelled} and *", picture())
        piece = seer._model.piece
        read = b"".join(piece(token) for token in prepared.tokens if token >= 0)
        assert spelled.encode() in read
        assert len(prepared.spans) == 1


def test_a_template_that_leaves_out_an_attachment_is_refused(seer):
    asked = shown("no place for it", picture())
    with pytest.raises(RefusedError, match="renders 0 of 1 attachments"):
        seer.prepare(asked, fds_of((picture(),)))


def test_files_of_media_are_closed_once_they_are_read(seer):
    media = (picture(), sound())
    fds = fds_of(media)
    seer.prepare(shown("* *", *media), fds)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


def test_files_of_a_job_that_is_refused_are_left_to_the_caller(seer):
    media = (picture(), sound(sample_rate=8000))
    fds = fds_of(media)
    with pytest.raises(RefusedError, match="8000 Hz"):
        seer.prepare(shown("* *", *media), fds)
    for fd in fds:
        os.close(fd)


def test_a_model_without_a_projector_takes_no_attachments(backend):
    with pytest.raises(RefusedError, match="takes no attachments"):
        prepare(backend, "*", picture())


def test_a_prompt_with_media_is_kept_though_its_beginning_has_no_text(fresh):
    n_tokens = ask(fresh, "*" * 8, *[picture()] * 8).answer.end.usage.prompt_tokens
    assert n_tokens > CACHED_PREFIX_TOKENS_MIN
    assert ask(fresh, "*" * 8, *[picture()] * 8).reuse.cached_tokens == n_tokens - 1


def test_no_prompt_begins_inside_an_atomic_chunk(fresh, monkeypatch):
    def alike(digest, sizes):
        return [[-1] * (n - 1) + [-2 - digest[0]] for n in sizes]

    monkeypatch.setattr(
        "inferd.worker.llama.multimodal.prompt_spans.placeholder_tokens", alike
    )
    first = prepare(fresh, QUESTION, picture(1))
    [span] = first.spans
    ask(fresh, QUESTION, picture(1))
    found = ask(fresh, QUESTION, picture(2)).reuse.cached_tokens
    assert found == (0 if span.chunk.is_atomic else span.end - 1)


def test_an_image_with_non_causal_attention_must_fit_a_batch(fresh, monkeypatch):
    [span] = prepare(fresh, "*", picture(), cache="off").spans
    monkeypatch.setattr(
        "inferd.worker.llama.multimodal.pipeline.PREFILL_CHUNK_TOKENS", 3
    )
    try:
        prepare(fresh, "*", picture())
    except RefusedError as error:
        assert "4 tokens that must be decoded at once; at most 3" in str(error)  # noqa: PT017  # one of two ends
        assert not span.chunk.is_causal
    else:
        assert span.chunk.is_causal


def test_a_prompt_with_a_picture_comes_back_from_host_memory(fresh):
    ask(fresh, QUESTION, picture())
    for ticket in range(N_SLOTS):  # others take all slots
        fresh.start(ticket, fresh.prepare(job("hello", cache="auto", owner=BEN)))
    list(running(fresh))
    found = ask(fresh, QUESTION + " again", picture())
    assert found.n_encoded == 0
    assert found.reuse.cached_tokens > N_BEFORE + N_IMAGE_TOKENS
    assert found.answer.text == text(fresh, QUESTION + " again", picture())


def test_a_template_that_ends_with_an_attachment_is_refused(tmp_path, tiny_projector):
    path = write_tiny_model(tmp_path / "m.gguf", template="{{ messages[0].content }}")
    backend = load(path, mmproj=str(tiny_projector))[0]
    prepare(backend, "* and", picture())
    with pytest.raises(RefusedError, match="no text after an attachment"):
        prepare(backend, "and *", picture())


def test_a_recurrent_model_decodes_its_image_again(
    tmp_path, tiny_projector, monkeypatch
):
    monkeypatch.setattr("tests.model.tiny.TEMPLATE", "{{ messages[0].content }}")
    path = write_tiny_mamba(tmp_path / "mamba.gguf")
    backend = load(path, mmproj=str(tiny_projector), media_cache_mb=0)[0]
    text = "look at this picture: * and say"
    ask(backend, text, picture(), prefill_only=True)
    expected = ask(backend, text + " what", picture(), cache="off").answer.text
    cut_short(monkeypatch)
    again = ask(backend, text + " what", picture())
    assert again.reuse.cached_tokens > N_IMAGE_TOKENS
    assert (again.n_encoded, again.answer.text) == (1, expected)


def cut_short(monkeypatch):
    """Interrupt the next batch once all of it is in the cache."""
    decode, left = LlamaContext.decode, [INTERRUPTED]

    def once(context, batch):
        code = decode(context, batch)
        return left.pop() if left else code

    monkeypatch.setattr(LlamaContext, "decode", once)


def test_penalties_count_tokens_alone(seer, monkeypatch):
    counted = []
    accept = llama.llama_sampler_accept

    def note(sampler, token):
        counted.append(token)
        accept(sampler, token)

    monkeypatch.setattr(llama, "llama_sampler_accept", note)
    penal = replace(GREEDY, repeat_penalty=1.5)
    assert ask(seer, "a * b", picture(), sampling=penal, cache="off").answer.text
    assert counted
    assert min(counted) >= 0


def test_guesses_and_media_go_together(tiny_model, tiny_projector):
    plain = load(tiny_model, mmproj=str(tiny_projector))[0]
    expected = text(plain, QUESTION, picture(), max_tokens=40)
    for options in (
        {"speculation": "lookup", "draft_max": 7},
        {"speculation": "draft", "draft_model": str(tiny_model)},
    ):
        guessing = load(tiny_model, mmproj=str(tiny_projector), **options)[0]
        assert text(guessing, QUESTION, picture(), max_tokens=40) == expected


def test_a_draft_model_drafts_only_for_prompts_without_media(
    tiny_model, tiny_projector
):
    options = {"speculation": "draft", "draft_model": str(tiny_model)}
    backend = load(tiny_model, mmproj=str(tiny_projector), **options)[0]
    backend.start(1, prepare(backend, QUESTION, picture(), max_tokens=40))
    backend.start(2, backend.prepare(job("hello", max_tokens=40)))
    guessed = {ticket for step in running(backend) for ticket, _ in step.drafted}
    assert guessed == {2}
