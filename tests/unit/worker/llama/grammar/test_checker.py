import hashlib

import pytest

from inferd.backend.job import Structure
from inferd.limits.worker import GRAMMAR_TOTAL_BYTES
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import Grammar, GrammarPart, grammar_of
from inferd.worker.llama.grammar.checker import GrammarChecker
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.prepare.model_info import TokenTable

WORDS = TokenTable(
    token_bytes=[*(bytes([each]) for each in range(256)), b"<end>"],
    special=[256],
    ends=[256],
)
TOKENIZER = tokenizer_of(WORDS)


def regex(source):
    return grammar_of(Structure(kind="regex", source=source))


def digest_of(grammar):
    return hashlib.sha256(grammar.source.encode()).digest()


def test_a_checked_grammar_has_passed_after_its_field_was_reported():
    told: list[str] = []
    checker = GrammarChecker(TOKENIZER, report=told.append)
    checker.check(regex("a+"))
    checker.check(regex("b+"))
    assert told == ["response_format.pattern"] * 2
    assert [*checker.passed] == [digest_of(regex("a+")), digest_of(regex("b+"))]


def test_a_grammar_known_to_compile_is_not_compiled():
    checker = GrammarChecker(TOKENIZER, [digest_of(regex("a+"))], report=pytest.fail)
    checker.check(regex("a+"))
    assert [*checker.passed] == [digest_of(regex("a+"))]


def test_what_does_not_compile_is_refused_and_its_parts_told():
    told: list[str] = []
    parts = (GrammarPart("tools[0].input_schema", "tool", 'start: "a"'),)
    bad = Grammar("start: foo", (*parts, GrammarPart("grammar", "lark", "start: foo")))
    checker = GrammarChecker(TOKENIZER, report=told.append)
    with pytest.raises(RefusedError, match=r"^grammar: .*unknown name"):
        checker.check(bad)
    assert told == ["response_format and tools", "tools[0].input_schema", "grammar"]
    assert not checker.passed


def test_a_grammar_over_the_limit_is_refused_before_it_is_compiled():
    checker = GrammarChecker(TOKENIZER, report=pytest.fail)
    with pytest.raises(RefusedError, match="at most 524288 are allowed"):
        checker.check(regex("x" * GRAMMAR_TOTAL_BYTES))
