from copy import copy

import pytest

from inferd.backend.job import Sampling
from inferd.limits.worker import DRAFT_READ_S
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.speculation.acceptance import AcceptanceRate
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import (
    GREEDY,
    answer,
    collect,
    job,
    load,
    steps,
)

pytestmark = pytest.mark.model

SAMPLED = Sampling(temperature=1, top_p=1, top_k=0, seed=5)


@pytest.fixture(scope="module")
def twin(tiny_model):
    """A model that guesses for itself."""
    return load(
        tiny_model, speculation="draft", draft_model=str(tiny_model), draft_max=7
    )[0]


@pytest.fixture(scope="module")
def other_model(tiny_model, tmp_path_factory):
    """Another model guesses, and is wrong as a rule."""
    path = write_tiny_model(tmp_path_factory.mktemp("draft") / "draft.gguf", seed=9)
    return load(tiny_model, speculation="draft", draft_model=str(path), draft_max=7)[0]


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    def n_drafts(self, costs, *, n_streams, at_most):
        return at_most

    monkeypatch.setattr(AcceptanceRate, "n_drafts", n_drafts)


def drafter_of(backend):
    return backend._engine.decoder._speculation._drafter


def run(backend, *asked):
    for ticket, each in enumerate(asked):
        backend.start(ticket, backend.prepare(each))
    took = list(steps(backend))
    told = [guesses for step in took for _, guesses in step.drafted]
    drafted = sum(each.drafted_tokens for each in told)
    return collect(iter(took)), drafted, sum(each.accepted_tokens for each in told)


def test_a_model_that_drafts_for_itself_is_always_right(backend, twin):
    asked = job(max_tokens=100)
    given, drafted, accepted = run(twin, asked)
    assert given[0].text == answer(backend, asked).text
    assert accepted == drafted > 80


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_wrong_drafts_change_no_answer(backend, other_model, sampling):
    asked = job(sampling=sampling, max_tokens=80)
    given, drafted, accepted = run(other_model, asked)
    assert given[0].text == answer(backend, asked).text
    assert drafted > 2 * accepted


def test_several_answers_are_guessed_in_one_batch(backend, twin):
    asked = [job(text, max_tokens=40) for text in ("one", "and another", "a third")]
    expected = [answer(backend, each).text for each in asked]
    given, drafted, accepted = run(twin, *asked)
    assert [given[ticket].text for ticket in range(3)] == expected
    assert accepted == drafted > 90


def test_rejected_guesses_leave_nothing_in_the_way_of_later_ones(twin, monkeypatch):
    """With every other guess spoilt, the rest of them is as right as ever."""
    draft = drafter_of(twin).draft
    n_calls = iter(range(1000))

    def spoilt(wanted):
        drafts = draft(wanted)
        if next(n_calls) % 2:
            return drafts
        return {each: [7, *tokens[1:]] for each, tokens in drafts.items()}

    monkeypatch.setattr(drafter_of(twin), "draft", spoilt)
    _, drafted, accepted = run(twin, job(max_tokens=73))
    assert accepted == 8 * 7 == drafted - 8 * 7


def test_dropped_answers_leave_no_cells(twin, backend):
    drafter = drafter_of(twin)
    for n_steps in range(1, 6):
        for ticket in range(3):
            twin.start(ticket, twin.prepare(job(max_tokens=50)))
        list(steps(twin, n_steps))
        for ticket in range(3):
            twin.drop(ticket)
    assert drafter._cells == {}
    assert sorted(drafter._free) == [0, 1, 2]
    assert [last_position(drafter, slot) for slot in range(3)] == [-1] * 3


def last_position(drafter, slot):
    from inferd.worker.llama.library.binding import llama  # noqa: PLC0415

    return llama.llama_memory_seq_pos_max(drafter._context._memory, slot)


def test_a_long_prompt_is_decoded_in_chunks_and_drafted_for_afterwards(
    backend, twin, monkeypatch
):
    monkeypatch.setattr(ChunkSizer, "chunk", 64)
    asked = job("x" * 300, max_tokens=60)
    given, drafted, accepted = run(twin, asked)
    assert given[0].text == answer(backend, asked).text
    assert 40 < accepted == drafted


def test_a_failing_draft_model_costs_only_its_drafts(twin, backend, monkeypatch):
    asked = job(max_tokens=30)
    expected = answer(backend, asked).text
    context = drafter_of(twin)._context
    decode = context.decode
    outcomes = iter([0, 0, 1, 0, -3, -3])
    monkeypatch.setattr(
        context, "decode", lambda batch: next(outcomes, 0) or decode(batch)
    )
    given, _, accepted = run(twin, asked)
    assert given[0].text == expected
    assert accepted > 10


# --- beside the prompt cache ----------------------------------------------------------

BASE = "the keeper of the lighthouse " * 8


def reusing(text, **options):
    return job(text, **{"cache": "auto", "owner": 1, "max_tokens": 30, **options})


def slots_of(backend):
    return backend._engine.decoder._slots


def cached_tokens(answers):
    return answers[0].end.usage.cached_tokens


@pytest.mark.parametrize("prompt_cache_mb", [1, 64])
def test_prompts_in_the_prefix_cache_are_drafted_for_like_others(
    tiny_model, monkeypatch, prompt_cache_mb
):
    """The draft model, which keeps nothing, reads all of it: its guesses are right.

    Not each of them: how a prompt is cut moves the answers of this model a lot.
    """
    monkeypatch.setattr(ChunkSizer, "chunk", 512)
    backend, _ = load(
        tiny_model,
        speculation="draft",
        draft_model=str(tiny_model),
        draft_max=7,
        prompt_cache_mb=prompt_cache_mb,
    )
    run(backend, reusing(BASE))
    again, drafted, accepted = run(backend, reusing(BASE + "and her ship"))
    assert cached_tokens(again) > 200
    assert accepted > 0.6 * drafted > 10
    for each in slots_of(backend)._prefixes.idle:  # to host memory, if there is any
        slots_of(backend)._empty(each.slot)
    fetched, drafted, accepted = run(backend, reusing(BASE + "and her ship"))
    assert cached_tokens(fetched) > 200
    assert accepted > 0.6 * drafted > 10


def test_a_draft_model_that_reads_holds_up_no_answer_for_long(twin, monkeypatch):
    monkeypatch.setattr(ChunkSizer, "chunk", 48)
    batch = drafter_of(twin)._batch
    sizes = []
    decode = drafter_of(twin)._context.decode

    def noted(handle):
        sizes.append(len(batch))
        return decode(handle)

    monkeypatch.setattr(drafter_of(twin)._context, "decode", noted)
    twin.start(0, twin.prepare(job("short", max_tokens=250)))
    list(steps(twin, 3))
    twin.start(1, twin.prepare(job("x" * 300, max_tokens=20)))
    took = list(steps(twin))
    n_until = next(n for n, step in enumerate(took) if step.ended)
    assert n_until > 300 / 48
    for step in took[:n_until]:
        assert 0 in [ticket for ticket, _ in step.pieces]
    assert max(sizes) == 48


class Small(ChunkSizer):
    """A pace that never changes."""

    chunk = 24


def test_short_prompts_are_read_and_guessed_while_a_long_one_is_read(twin, monkeypatch):
    drafter = drafter_of(twin)
    monkeypatch.setattr(drafter, "_chunk_sizer", Small(24))
    draft = drafter.draft
    guessed = []

    def noted(wanted):
        drafts = draft(wanted)
        if len(wanted) == 2:
            guessed.append({each.ticket for each, tokens in drafts.items() if tokens})
        return drafts

    monkeypatch.setattr(drafter, "draft", noted)
    for ticket, text in enumerate(["x" * 150, "short"]):
        twin.start(ticket, twin.prepare(job(text, max_tokens=120)))
    list(steps(twin))
    until = guessed.index({0, 1})
    assert until > 150 / 24
    assert guessed[2:until] == [{1}] * (until - 2)


def test_a_draft_model_s_pace_is_not_that_of_prompts(twin):
    pace = copy(drafter_of(twin)._chunk_sizer)
    for _ in range(50):
        pace.observe(100, 100 * DRAFT_READ_S / 40)
    assert pace.chunk in {39, 40}
