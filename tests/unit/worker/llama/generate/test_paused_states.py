from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import GenerateJob, Media, RerankJob, Sampling, Structure
from inferd.ipc.worker import Embedded, Failed, Paused, Scored, Step
from inferd.worker.backend import StepOutcome
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.generate.paused_states import PausedStates
from inferd.worker.llama.generator import Generator
from tests.fakes.fds import memfd
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import (
    GREEDY,
    N_SLOTS,
    Answer,
    collect,
    embed_job,
    encode_all,
    job,
    load,
    scores,
    vectors,
    vectors_of,
)

OTHERS = range(90, 90 + N_SLOTS)
SAMPLED = Sampling(temperature=1, top_p=1, top_k=0, seed=5)
SHORTLISTED = Sampling(temperature=1.5, top_p=0.9, top_k=40, seed=6)
PENALISED = Sampling(temperature=1, top_p=1, top_k=0, seed=7, repeat_penalty=1.4)
LETTERS = Structure(kind="regex", source="([a-m] (yes|nein) ){20}")


# --- what is kept -----------------------------------------------------------------------


def sequence(ticket: int, owner: int) -> Any:
    return SimpleNamespace(ticket=ticket, job=SimpleNamespace(owner=owner))


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans())),
    st.integers(0, 100),
)
def test_states_are_within_the_bound_and_nobody_loses_an_even_share(steps, max_bytes):
    pauses = PausedStates(max_bytes)
    sizes: dict[int, tuple[int, int]] = {}
    for ticket, (owner, n_bytes, leaves) in enumerate(steps):
        before = {t: pauses._paused[t][1] is not None for t in sizes}
        has_room = pauses.make_room(owner, n_bytes)
        held = {o: 0 for o, _ in sizes.values()} | {owner: n_bytes}
        for t, (o, n) in sizes.items():
            held[o] += n * before[t]
        pauses.put(
            sequence(ticket, owner), np.zeros(n_bytes, np.uint8) if has_room else None
        )
        users = {o for t, (o, n) in sizes.items() if before[t]} | {owner}
        for t, (o, n) in sizes.items():
            if before[t] and pauses._paused[t][1] is None and n:
                assert o != owner
                assert held[o] * len(users) > max_bytes
        if sum(held.values()) <= max_bytes or held[owner] * len(held) <= max_bytes:
            assert has_room
        sizes[ticket] = (owner, n_bytes)
        assert pauses.n_bytes <= max_bytes
        if leaves:
            assert pauses.take(ticket) is not None
            assert ticket not in pauses
            del sizes[ticket]


# --- answers ----------------------------------------------------------------------------


def run_until_paused(backend: LlamaBackend, ticket: int) -> list[StepOutcome]:
    """Step until a job stands still, or is over."""
    outcomes: list[StepOutcome] = []
    backend.pause(ticket)
    while backend.is_busy and Paused(ticket=ticket) not in outcomes:
        outcomes += backend.step()
    return outcomes


def disturb(backend: LlamaBackend) -> None:
    """Have others run in every slot for a while."""
    for ticket in OTHERS:
        backend.start(ticket, backend.prepare(job("d" * ticket, max_tokens=500)))
    for _ in range(4):
        backend.step()
    for ticket in OTHERS:
        backend.drop(ticket)


def outcomes_with_pauses(
    backend: LlamaBackend,
    asked: GenerateJob,
    fds: Iterable[int] = (),
    *,
    every: int | None,
) -> list[StepOutcome]:
    """Run a job that is paused again and again, after so many steps each time."""
    backend.start(1, backend.prepare(asked, [*fds]))
    outcomes: list[StepOutcome] = []
    while backend.is_busy:
        outcomes += steps_of(backend, every or 1)
        if every and backend.is_busy:
            told = run_until_paused(backend, 1)
            outcomes += told
            if Paused(ticket=1) in told:
                disturb(backend)
                backend.resume(1)
    return outcomes


def steps_of(backend: LlamaBackend, at_most: int) -> list[StepOutcome]:
    outcomes: list[StepOutcome] = []
    while backend.is_busy and at_most:
        outcomes += backend.step()
        at_most -= 1
    return outcomes


def answer_of(outcomes: Iterable[StepOutcome]) -> Answer:
    return collect(each for each in outcomes if isinstance(each, Step))[1]


def n_pauses(outcomes: list[StepOutcome]) -> int:
    return outcomes.count(Paused(ticket=1))


def pauses_of(backend: LlamaBackend) -> PausedStates:
    assert isinstance(backend._engine, Generator)
    return backend._engine.decoder._slots._paused_states


def same_with_pauses(
    backend: LlamaBackend, asked: GenerateJob, *, every: int = 3, at_least: int = 3
) -> None:
    alone = answer_of(outcomes_with_pauses(backend, asked, every=None))
    outcomes = outcomes_with_pauses(backend, asked, every=every)
    paused = answer_of(outcomes)
    assert paused.text == alone.text
    assert [each.token for each in paused.logprobs] == [
        each.token for each in alone.logprobs
    ]
    assert paused.end.stop_reason == alone.end.stop_reason
    assert paused.end.usage.completion_tokens == alone.end.usage.completion_tokens
    assert n_pauses(outcomes) >= at_least
    assert not pauses_of(backend)._paused


ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": GREEDY},
    "sampled": {"sampling": SAMPLED},
    "shortlisted": {"sampling": SHORTLISTED},
    "penalised": {"sampling": PENALISED},
    "kept": {"sampling": GREEDY, "cache": "auto"},
    "log probabilities": {"sampling": SAMPLED, "n_alternatives": 3},
    "structured": {"sampling": SAMPLED, "structure": LETTERS},
    "no end": {"sampling": SAMPLED, "min_tokens": 50},
    "long prompt": {"sampling": GREEDY, "text": "long " * 80},
}


@pytest.mark.model
@pytest.mark.parametrize("fields", ASKED.values(), ids=ASKED)
def test_a_paused_answer_goes_on_with_the_same_text(backend, fields):
    same_with_pauses(backend, job(**{"max_tokens": 50, **fields}))


@pytest.mark.model
@pytest.mark.parametrize("every", [1, 7])
def test_an_answer_may_be_paused_at_every_token(backend, every):
    same_with_pauses(
        backend, job("hello", max_tokens=40, sampling=SAMPLED), every=every
    )


@pytest.mark.model
@pytest.mark.parametrize("kind", ["window", "state", "lookup", "draft"])
def test_so_does_one_of_any_kind_of_model(kind, tiny_model, tiny_mamba, tmp_path):
    match kind:
        case "window":
            path = write_tiny_model(tmp_path / "sliding.gguf", window=32)
            backend, _ = load(path)
        case "state":
            backend, _ = load(tiny_mamba)
        case "lookup":
            backend, _ = load(tiny_model, speculation="lookup", draft_max=7)
        case _:
            backend, _ = load(
                tiny_model, speculation="draft", draft_model=str(tiny_model)
            )
    for sampling in (GREEDY, SAMPLED):
        same_with_pauses(
            backend, job("abc abc abc " * 8, max_tokens=60, sampling=sampling)
        )


@pytest.mark.model
@pytest.mark.parametrize("kind", ["plain", "state"])
def test_one_for_whose_state_there_is_no_room_is_read_again(
    kind, tiny_model, tiny_mamba
):
    path = tiny_mamba if kind == "state" else tiny_model
    backend, _ = load(path, pause_mb=0, prompt_cache_mb=0)
    # Another size of batch changes the last bits of sums, and so a text in the long run.
    same_with_pauses(backend, job("hello " * 30, max_tokens=12), every=1)


@pytest.mark.model
def test_progress_of_a_paused_prompt_is_reported_once(backend):
    asked = job("long " * 90, max_tokens=3, wants_progress=True)
    outcomes = outcomes_with_pauses(backend, asked, every=1)
    assert n_pauses(outcomes) > 1
    prefilled = answer_of(outcomes).prefilled
    assert prefilled == sorted(set(prefilled))
    assert prefilled[-1] == backend.prepare(asked).prompt_tokens


@pytest.mark.model
def test_each_stint_gets_on_even_where_all_is_read_again(tiny_model):
    backend, _ = load(tiny_model, pause_mb=0)
    backend.start(1, backend.prepare(job("hello " * 40, max_tokens=12)))
    n_written = [0]
    while backend.is_busy:
        told = run_until_paused(backend, 1)
        n_written.append(n_written[-1] + len(answer_of(told).pieces))
        disturb(backend)
        backend.resume(1)
    assert n_written[-1] == 12
    assert all(b >= a for a, b in pairwise(n_written))


@pytest.mark.model
def test_a_picture_is_read_between_pauses(seer):
    image = Media(kind="image", id="i", n_bytes=64 * 64 * 3, width=64, height=64)
    asked = msgspec.structs.replace(
        job("see <i>", max_tokens=20), media=(image,), marker="<i>"
    )

    def picture() -> list[int]:
        return [memfd(bytes(range(256)) * 48)]

    alone = answer_of(outcomes_with_pauses(seer, asked, picture(), every=None))
    outcomes = outcomes_with_pauses(seer, asked, picture(), every=1)
    assert answer_of(outcomes).text == alone.text
    assert n_pauses(outcomes) > 3


@pytest.mark.model
def test_a_job_dropped_while_paused_is_removed(backend):
    backend.start(1, backend.prepare(job("hello", max_tokens=100)))
    run_until_paused(backend, 1)
    assert not backend.is_busy
    backend.drop(1)
    backend.resume(1)
    assert not backend.is_busy
    assert pauses_of(backend).n_bytes == 0


@pytest.mark.model
def test_a_job_that_ends_before_its_pause_is_not_paused(backend):
    backend.start(1, backend.prepare(job("hello", max_tokens=1)))
    backend.pause(2)
    backend.pause(1)
    backend.drop(1)
    assert not backend.is_busy
    backend.start(2, backend.prepare(job("hello", max_tokens=2)))
    assert Paused(ticket=1) not in steps_of(backend, 1000)


# --- vectors and scores -----------------------------------------------------------------


@pytest.mark.model
def test_vectors_of_a_paused_job_are_those_of_one_that_runs_through(encoder):
    texts = [f"text {n} " * (n % 7 + 1) for n in range(40)]
    expected = vectors(encoder, *texts)
    encoder.start(1, encoder.prepare(embed_job(*texts)))
    first = encoder.step()
    encoder.pause(1)
    assert encoder.step() == [Paused(ticket=1)]
    assert not encoder.is_busy
    encoder.start(2, encoder.prepare(embed_job("another")))
    encode_all(encoder)
    encoder.resume(1)
    [known] = first
    assert isinstance(known, Embedded)
    joined = encode_all(encoder, {1: known})[1]
    np.testing.assert_allclose(vectors_of(joined), expected, atol=1e-5)


@pytest.mark.model
def test_scores_of_a_paused_job_are_those_of_one_that_runs_through(ranker):
    documents = [f"document {n}" for n in range(40)]
    expected = scores(ranker, "query", *documents)
    ranker.start(1, ranker.prepare(RerankJob(query="query", documents=documents)))
    ranker.step()
    ranker.pause(1)
    assert Paused(ticket=1) in ranker.step()
    ranker.resume(1)
    found = encode_all(ranker)[1]
    assert not isinstance(found, Failed)
    assert isinstance(found, Scored)
    assert found.scores == pytest.approx(expected, abs=1e-5)
    ranker.pause(1)
    ranker.drop(1)
    assert not ranker.is_busy
