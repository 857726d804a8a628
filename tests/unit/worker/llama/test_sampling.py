from collections import Counter

import pytest

from inferd.job import GenerateJob, Sampling
from inferd.wire.requests import ChatMessage
from inferd.worker.backend import RefusedError

pytestmark = pytest.mark.model


def answer(backend, *, n_tokens=8, **sampling):
    options = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 1} | sampling
    job = GenerateJob(
        messages=[ChatMessage("user", "hello")],
        max_tokens=n_tokens,
        sampling=Sampling(**options),
    )
    backend.start(1, backend.prepare(job))
    text = b""
    while backend.is_busy:
        text += b"".join(piece for _, piece in backend.step().pieces)
    return text


def test_a_seed_gives_the_same_answer_again(backend):
    assert answer(backend, seed=7) == answer(backend, seed=7)


def test_seeds_give_different_answers(backend):
    assert len({answer(backend, seed=seed) for seed in range(8)}) > 4


def test_temperature_zero_needs_no_seed(backend):
    assert answer(backend, temperature=0, seed=1) == answer(
        backend, temperature=0, seed=2
    )


def test_top_k_of_one_is_the_likeliest(backend):
    assert answer(backend, top_k=1) == answer(backend, temperature=0)


def test_a_tiny_top_p_is_the_likeliest(backend):
    assert answer(backend, top_p=1e-6) == answer(backend, temperature=0)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_grammar_is_followed(backend, temperature):
    text = answer(
        backend, temperature=temperature, grammar='root ::= "yes" | "no"', n_tokens=16
    )
    assert text in (b"yes", b"no")


def test_a_grammar_leaves_the_choice_to_the_model(backend):
    grammar = 'root ::= "a" | "b" | "c" | "d"'
    counts = Counter(
        answer(backend, grammar=grammar, seed=seed, n_tokens=4) for seed in range(40)
    )
    assert len(counts) > 1


@pytest.mark.parametrize("grammar", ["root ::= other", "no rules", 'leaf ::= "a"'])
def test_a_grammar_that_does_not_parse_is_refused(backend, grammar):
    with pytest.raises(RefusedError, match="GBNF"):
        answer(backend, grammar=grammar)
    assert not backend.is_busy
