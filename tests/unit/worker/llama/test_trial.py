import hashlib

import pytest

from inferd.job import Structure
from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_TOTAL_BYTES
from inferd.worker.llama.compiler import tokenizer_of
from inferd.worker.llama.facts import Words
from inferd.worker.llama.grammar import Grammar, Part, grammar_of
from inferd.worker.llama.trial import Trial

WORDS = Words(
    spelt=[*(bytes([each]) for each in range(256)), b"<end>"], special=[256], ends=[256]
)
TOKENIZER = tokenizer_of(WORDS)


def regex(source):
    return grammar_of(Structure(kind="regex", source=source))


def digest_of(grammar):
    return hashlib.sha256(grammar.source.encode()).digest()


def test_what_compiles_has_passed_and_its_field_was_told_before():
    told: list[str] = []
    trial = Trial(TOKENIZER, tell=told.append)
    trial.check(regex("a+"))
    trial.check(regex("b+"))
    assert told == ["response_format.pattern"] * 2
    assert [*trial.passed] == [digest_of(regex("a+")), digest_of(regex("b+"))]


def test_what_is_known_is_not_tried():
    trial = Trial(TOKENIZER, [digest_of(regex("a+"))], tell=pytest.fail)
    trial.check(regex("a+"))
    assert [*trial.passed] == [digest_of(regex("a+"))]


def test_what_does_not_compile_is_refused_and_its_parts_told():
    told: list[str] = []
    parts = (Part("tools[0].input_schema", "tool", 'start: "a"'),)
    bad = Grammar("start: foo", (*parts, Part("grammar", "lark", "start: foo")))
    trial = Trial(TOKENIZER, tell=told.append)
    with pytest.raises(RefusedError, match=r"^grammar: .*unknown name"):
        trial.check(bad)
    assert told == ["response_format and tools", "tools[0].input_schema", "grammar"]
    assert not trial.passed


def test_a_grammar_over_the_bound_is_refused_before_it_is_tried():
    trial = Trial(TOKENIZER, tell=pytest.fail)
    with pytest.raises(RefusedError, match="at most 524288 are allowed"):
        trial.check(regex("x" * GRAMMAR_TOTAL_BYTES))
