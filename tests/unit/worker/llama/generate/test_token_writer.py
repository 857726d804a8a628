import pytest

from inferd.backend.job import Sampling
from inferd.worker.llama.grammar.constraint import Lookahead
from tests.unit.worker.llama.running import (
    GREEDY,
    answer,
    collect,
    job,
    steps,
    take_step,
)

pytestmark = pytest.mark.model

SAMPLED = Sampling(temperature=1, top_p=1, top_k=0, seed=5)


def with_drafts(backend, asked, tokens, *, wrong_every=0, at_once=4):
    """Answer, with drafts of what is known to come, some of them wrong; give the steps."""
    prepared = backend.prepare(asked)
    sequence: list[int] = []

    def ahead():
        n = len(sequence)
        drafts = tokens[n : n + at_once]
        if wrong_every:
            drafts = [
                (token + (n + i) % wrong_every // (wrong_every - 1)) % 300
                for i, token in enumerate(drafts)
            ]
        return Lookahead([], drafts)

    prepared.sampler.is_constrained = True
    prepared.sampler.lookahead = ahead
    prepared.sampler.accept = sequence.append
    backend.start(1, prepared)
    return list(steps(backend))


def ids_of(given):
    return [each.id for each in given.logprobs]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("wrong_every", [0, 2, 3, 7])
def test_drafts_change_no_answer(backend, sampling, wrong_every):
    asked = job(sampling=sampling, n_alternatives=1, max_tokens=40)
    plain = answer(backend, asked)
    took = with_drafts(backend, asked, ids_of(plain), wrong_every=wrong_every)
    given = collect(iter(took))[1]
    assert (given.pieces, given.end) == (plain.pieces, plain.end)
    assert ids_of(given) == ids_of(plain)


def test_drafts_that_come_true_take_no_steps_of_their_own(backend):
    asked = job(max_tokens=40)
    tokens = ids_of(answer(backend, job(max_tokens=40, n_alternatives=1)))
    assert len(with_drafts(backend, asked, tokens)) == 9  # one, then five at a time
    assert len(with_drafts(backend, asked, [0] * 40)) == 40


def test_drafts_leave_batch_capacity_for_other_sequences(backend):
    expected = {
        n: answer(backend, job(f"prompt {n}", max_tokens=9)).text for n in (2, 3)
    }
    prepared = backend.prepare(job(max_tokens=9))
    prepared.sampler.lookahead = lambda: Lookahead([], [0] * 10_000)
    backend.start(1, prepared)
    take_step(backend)
    for n in expected:
        backend.start(n, backend.prepare(job(f"prompt {n}", max_tokens=9)))
    given = collect(steps(backend))
    assert {n: given[n].text for n in expected} == expected


def test_an_answer_that_ends_in_its_drafts_is_as_long_as_asked(backend):
    tokens = ids_of(answer(backend, job(max_tokens=40, n_alternatives=1)))
    given = collect(iter(with_drafts(backend, job(max_tokens=7), tokens)))[1]
    assert given.end.usage.completion_tokens == len(given.pieces) == 7
