import pytest
from llguidance import LLTokenizer

from inferd.limits.worker import (
    GRAMMAR_LEXER_STATES,
    GRAMMAR_ROW_ITEMS,
    GRAMMAR_STEP_ITEMS,
)
from inferd.worker.llama.grammar.compiler import (
    LIMITS,
    compile_error,
    token_table_of,
    tokenizer_of,
)
from inferd.worker.llama.prepare.model_info import TokenTable
from tests.cases import each_case

TOKENIZER = LLTokenizer("byte")


@pytest.mark.parametrize("source", ['start: "a"', "start: /[a-z]+/", 'start: ""'])
def test_of_what_compiles_there_is_nothing_to_say(source):
    assert compile_error(TOKENIZER, source) is None


@each_case(
    ("source", "said"),
    [
        ("start: foo", "unknown name"),
        ("", "Empty grammar"),
        ("start: start", "NoExtensionBias"),
        ('start: %json {"not": {}}', "Unimplemented keys"),
    ],
)
def test_what_does_not_compile_or_cannot_begin_is_told(source, said):
    assert said in (compile_error(TOKENIZER, source) or "")


def test_a_vocabulary_is_rebuilt_from_its_table():
    spelt = [*(bytes([each]) for each in range(255)), b"<end>", b"ab", b"a", b"<|x|>"]
    words = TokenTable(token_bytes=spelt, special=[255, 258], ends=[255])
    assert token_table_of(tokenizer_of(words)) == words
    again = tokenizer_of(token_table_of(TOKENIZER))
    for number in range(TOKENIZER.vocab_size):
        assert again.decode_bytes([number]) == TOKENIZER.decode_bytes([number])
    assert again.tokenize_str("a") == [97]


def test_the_bounds_are_ours_and_errors_quote_no_answer():
    assert (LIMITS.max_items_in_row, LIMITS.step_max_items) == (
        GRAMMAR_ROW_ITEMS,
        GRAMMAR_STEP_ITEMS,
    )
    assert LIMITS.max_lexer_states == GRAMMAR_LEXER_STATES
    assert not LIMITS.verbose_errors
