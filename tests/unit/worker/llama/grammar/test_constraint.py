import json
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from inferd.limits.worker import GRAMMAR_TOTAL_BYTES
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar import constraint as module
from inferd.worker.llama.grammar.build import Grammar
from inferd.worker.llama.grammar.constraint import ConstraintError, GrammarVocabulary
from tests.cases import each_case
from tests.model.walking import Walker

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def walker(loaded):
    model = loaded._model
    with closing(Walker(model, GrammarVocabulary(model))) as walker:
        yield walker


def tokens_of(walker, text):
    return walker.model.tokenize(text, parses_special=False)[1:]  # without <s>


def test_special_tokens_are_those_that_no_text_spells(walker):
    assert set(walker.vocabulary.special) == {
        "<s>",
        "</s>",
        "<|im_start|>",
        "<|im_end|>",
    }
    constraint = walker.compile("regex", "(?s:.*)")
    allowed = walker.allowed(constraint)
    ends = {*walker.model.end_tokens}
    for token in walker.vocabulary.special.values():
        assert allowed[token] == (token in ends)


def test_a_mask_keeps_the_logits_of_allowed_tokens(walker):
    constraint = walker.compile("regex", "[ab]c")
    scores = np.random.default_rng(0).normal(size=walker.model.n_vocab)
    logits = scores.astype(np.float32)
    constraint.mask(logits)
    [a], [b] = tokens_of(walker, "a"), tokens_of(walker, "b")
    kept = np.flatnonzero(np.isfinite(logits))
    assert {walker.model.piece(token) for token in kept} == {b"a", b"b"}
    assert {a, b} <= {*kept}
    assert (logits[kept] == scores.astype(np.float32)[kept]).all()
    assert (logits[logits != logits.max()] < logits.max()).all()


def test_an_answer_may_end_by_any_end_token_where_the_grammar_may(walker):
    ends = [*walker.model.end_tokens]
    assert len(ends) == 2
    for end in ends:
        constraint = walker.compile("regex", "a+")
        assert not walker.allowed(constraint)[ends].any()
        constraint.accept(tokens_of(walker, "a"))
        assert (constraint.is_complete, constraint.is_stopped) == (True, False)
        assert walker.allowed(constraint)[ends].all()
        constraint.accept([end])
        assert (constraint.is_complete, constraint.is_stopped) == (True, True)


def test_at_its_end_a_grammar_allows_only_end_tokens(walker):
    constraint = walker.compile("regex", "ab")
    constraint.accept(tokens_of(walker, "ab"))
    assert (constraint.is_complete, constraint.is_stopped) == (True, True)
    assert constraint.lookahead().forced == []
    allowed = {*np.flatnonzero(walker.allowed(constraint))}
    assert allowed == {*walker.model.end_tokens}


@pytest.mark.parametrize("text", ["x", "ax", "a</s>"])
def test_a_token_that_may_not_follow_is_an_error_for_good(walker, text):
    constraint = walker.compile("regex", "ab")
    with pytest.raises(ConstraintError, match="chosen that may not follow$"):
        constraint.accept(walker.model.tokenize(text)[1:])
    for again in (
        lambda: constraint.mask(np.zeros(walker.model.n_vocab, np.float32)),
        lambda: constraint.accept(tokens_of(walker, "a")),
        constraint.lookahead,
    ):
        with pytest.raises(ConstraintError):
            again()
    assert not constraint.is_complete


def test_text_without_a_choice_is_forced_up_to_the_last_token(walker):
    schema = {"properties": {"key": {"type": "boolean"}}, "required": ["key"]}
    constraint = walker.compile("json_schema", json.dumps({"type": "object", **schema}))
    assert (
        walker.text(constraint.lookahead().forced) == b'{"key":'
    )  # the space could be longer
    closed = walker.compile("regex", "abc")
    assert walker.text(closed.lookahead().forced) == b"abc"  # nothing can follow


def test_a_special_token_separates_forced_text(walker):
    special = walker.vocabulary.special
    start = special["<|im_start|>"]
    grammar = Grammar(f'start: "ab" <[{start}]> "c" D\nD: /[0-9]+/\n')
    forced = walker.hold(grammar).lookahead().forced
    assert forced == [*tokens_of(walker, "ab"), start]  # what follows could be longer


def test_a_grammar_that_takes_too_long_for_a_token_is_an_error(walker, monkeypatch):
    constraint = walker.compile("regex", "[a-z]+")
    constraint.accept(tokens_of(walker, "a"))
    monkeypatch.setattr(module, "GRAMMAR_STEP_S", -1)
    with pytest.raises(ConstraintError, match="needs over"):
        constraint.mask(np.zeros(walker.model.n_vocab, np.float32))


def test_going_on_that_takes_too_long_is_an_error(walker, monkeypatch):
    constraint = walker.compile("regex", "ab")
    monkeypatch.setattr(module, "GRAMMAR_STEP_S", -1)
    with pytest.raises(ConstraintError, match="needs over -1 s for a token"):
        constraint.accept(tokens_of(walker, "a"))


def test_a_copy_that_takes_too_long_is_an_error(walker, monkeypatch):
    constraint = walker.compile("regex", "ab")
    constraint.allowed_tokens()
    monkeypatch.setattr(module, "GRAMMAR_STEP_S", -1)
    with pytest.raises(ConstraintError, match="needs over -1 s for a token"):
        constraint.lookahead()


def test_nothing_is_copied_where_the_grammar_leaves_a_choice(walker):
    constraint = walker.compile("regex", "[ab]+")
    matcher = constraint._matcher
    known = ("is_stopped", "is_error", "unsafe_compute_mask_ptr")
    constraint._matcher = SimpleNamespace(
        **{name: getattr(matcher, name) for name in known}
    )
    assert constraint.lookahead() == ([], [])


def test_a_grammar_over_the_bound_is_refused(walker):
    source = json.dumps({"enum": ["x" * GRAMMAR_TOTAL_BYTES]})
    with pytest.raises(RefusedError, match="at most 524288 are allowed"):
        walker.compile("json_schema", source)


def test_a_grammar_that_nothing_satisfies_is_refused(walker):
    with pytest.raises(RefusedError, match=r"^response_format\.schema: .*nothing can"):
        walker.compile("json_schema", '{"$ref": "#"}')


@each_case(
    ("source", "said"),
    [
        ("start: foo", 'response_format.grammar: at 1(8): unknown name: "foo"'),
        ('start: "a"\nb: "', "response_format.grammar: 2(5): lexer error"),
        ("", "response_format.grammar: no start rule found"),
        ('start: a\na[stop="x"]: /.*/', "response_format.grammar: line 2: stop is not"),
        ("start: a\na[temperature=2]: /.*/", "line 2: temperature is not supported"),
    ],
)
def test_a_grammar_of_lark_is_refused_by_its_own_lines(walker, source, said):
    with pytest.raises(RefusedError) as refusal:
        walker.compile("lark", source)
    assert said in str(refusal.value)
