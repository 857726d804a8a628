"""Guessing ahead with the embedded model, in the test's own process."""

import pytest

from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.speculation.acceptance import AcceptanceRate
from tests.unit.worker.llama.running import answer, collect, job, load, steps

pytestmark = [pytest.mark.model, pytest.mark.slow]

PROMPTS = {
    "repeat": (
        "Repeat the following text exactly, word for word:\n\nThe keeper climbs the "
        "stairs each evening and lights the lamp. He carries oil in a tin can, and "
        "bread in his coat. From the gallery he sees the boats come home."
    ),
    "free": "Write a long story about a lighthouse keeper and the sea.",
}


@pytest.fixture(scope="module")
def plain(embedded_chat) -> LlamaBackend:
    return load(embedded_chat, n_ctx=512)[0]


@pytest.fixture(scope="module")
def with_lookup(embedded_chat) -> LlamaBackend:
    return load(embedded_chat, n_ctx=512, speculation="lookup")[0]


@pytest.fixture(scope="module")
def drafting(embedded_chat) -> LlamaBackend:
    path = str(embedded_chat)
    return load(embedded_chat, n_ctx=512, speculation="draft", draft_model=path)[0]


@pytest.fixture(autouse=True)
def always_three(monkeypatch):
    def n_guesses(self, costs, *, n_streams, at_most):
        return min(3, at_most)

    monkeypatch.setattr(AcceptanceRate, "n_drafts", n_guesses)


def run(backend, asked):
    backend.start(1, backend.prepare(asked))
    took = list(steps(backend))
    return collect(iter(took))[1], [each for step in took for _, each in step.drafted]


@pytest.mark.long
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_likeliest_answer_is_the_same_with_lookups_which_guess_repetitions_well(
    plain, with_lookup, prompt
):
    asked = job(PROMPTS[prompt], max_tokens=64)
    given, guesses = run(with_lookup, asked)
    expected = answer(plain, asked)
    assert (given.text, given.end) == (expected.text, expected.end)
    drafted = sum(each.drafted_tokens for each in guesses)
    assert drafted > 0
    if prompt == "repeat":
        assert sum(each.accepted_tokens for each in guesses) > 0.5 * drafted > 10


@pytest.mark.long
def test_a_draft_model_that_is_the_model_is_right(plain, drafting):
    asked = job(PROMPTS["free"], max_tokens=48)
    given, guesses = run(drafting, asked)
    assert given.text == answer(plain, asked).text
    drafted = sum(each.drafted_tokens for each in guesses)
    assert sum(each.accepted_tokens for each in guesses) > 0.9 * drafted > 25
