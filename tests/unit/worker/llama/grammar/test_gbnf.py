from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st
from llguidance import LLMatcher, LLTokenizer

from inferd.limits.worker import GRAMMAR_MAX_RULES
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.gbnf import gbnf_to_lark
from tests.cases import each_case

TOKENIZER = LLTokenizer("byte")
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def takes(grammar, text):
    matcher = LLMatcher(TOKENIZER, gbnf_to_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = [*text.encode()]
    return matcher.consume_tokens(tokens) and matcher.is_accepting()


@each_case(
    ("grammar", "fits", "does_not"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "maybe", "yesno"]),
        ('root ::= "a"? "b"* "c"+', ["c", "abbcc"], ["a", "bb"]),
        ('root ::= "a"{2} "b"{1,3} "c"{2,}', ["aabcc"], ["abcc", "aabbbbcc"]),
        ('root ::= ("a" | "b" "c")+ "d"', ["bcad", "ad"], ["bd", "d"]),
        ("root ::= [-a] [^b-d] [x^]", ["-a^", "aex"], ["abx", "b-x"]),
        ("root ::= [\\]\\[] [\"'/]", ["]/", "['"], ["a/"]),
        ("root ::= [a&&b]+ [~~]", ["a&b~"], ["c~"]),
        (
            'root ::= "\\u00e4\\x42" "\\U0001F600" [\\u03b1-\\u03c9]',
            ["äB😀β"],
            ["aB😀β"],
        ),
        ('root ::= "\\x22\\x5C" [\\x5d\\x2D]', ['"\\]', '"\\-'], ['"\\x']),
        ('root ::= "ä→" [ж-я]', ["ä→щ"], ["ä→a"]),
        ('root ::= . "\\n" .', ["\n\n\n", "a\n→"], ["a\n", "abc"]),
        ('root ::= start\nstart ::= "a" root | "b"', ["aab"], ["a"]),
        ('root ::= a-B\na-B ::= "x" a_b\na_b ::= "y"', ["xy"], ["x"]),
        ('# all\nroot ::= "#" # not a comment\r\n', ["#"], ["# not a comment"]),
        (
            'root ::= word ("," word)*\nword ::= [a-z]* "s"',
            ["cats,s"],
            ["cat", "cats,"],
        ),
        ('root ::= [a-z]* "z"', ["z", "zz", "abz"], ["ab"]),
        ("root ::= ", [""], ["a"]),
        ('root ::= "a"{0}', [""], ["a"]),
        ('root ::= "a" ("b" root){0,0} [c]{0} "d"', ["ad"], ["abadd", "acd"]),
        (JSON, ['{"a": [1, -2.5e3, "x\\n"], "b":{}}', "{} "], ["[]", '{"a"}', "{"]),
    ],
)
def test_it_takes_what_llama_cpp_would_and_nothing_else(grammar, fits, does_not):
    assert {text: takes(grammar, text) for text in fits} == dict.fromkeys(fits, True)
    assert not any(takes(grammar, text) for text in does_not)


@each_case(
    ("grammar", "fits", "does_not"),
    [
        ('root ::= "(" root ")" | "if" | [a-z]+', ["if", "of"], ["iffy"]),
        ('root ::= "(" root ")" | "if" | a\na ::= [a-z]+', ["if", "iffy"], ["i f"]),
        ('root ::= "(" root ")" | "1" | a "s"\na ::= [a-z]+', ["(1)"], ["cats"]),
        ('root ::= "(" root ")" | [a-z]* "s"', ["s", "cats"], ["cat"]),
    ],
)
def test_with_recursion_text_is_cut_in_words_that_are_as_long_as_they_can_be(
    grammar, fits, does_not
):
    assert all(takes(grammar, text) for text in fits)
    assert not any(takes(grammar, text) for text in does_not)


@each_case(
    ("grammar", "said"),
    [
        ("", "there is no rule named root"),
        ('leaf ::= "a"', "there is no rule named root"),
        ("root ::= other", "there is no rule named other"),
        ("no rules", "there is no rule named no"),
        ('root ::= "a', 'line 1: what begins with " has no end'),
        ('root ::= "\\', 'line 1: what begins with " has no end'),
        ('root ::= "a"\nb ::= "\\"', 'line 2: what begins with " has no end'),
        ("root ::=\n[a-", "line 2: what begins with \\[ has no end"),
        ("root ::= [\\", "line 1: what begins with \\[ has no end"),
        ("root ::= [\\]", "line 1: what begins with \\[ has no end"),
        ('root ::= "a"{' + "9" * 5000 + "}", "repeated over 2147483647 times"),
        ('root ::= "a"{2147483648}', "repeated over 2147483647 times"),
        ('root ::= "a"{0,2147483648}', "repeated over 2147483647 times"),
        ('root ::= "a"{\u0663}', "there is no rule named \u0663"),
        ("root ::= (", "Expected '\\)'"),
        ("root ::= " + "(" * 5000, "nested too deeply"),
        ('root ::= "\\uD800"', "is no character"),
        ('root ::= "\\q"', "Invalid escape"),
        (
            "\n".join(f'r{n} ::= "a"' for n in range(GRAMMAR_MAX_RULES + 1)),
            "1001 rules",
        ),
    ],
)
def test_invalid_gbnf_is_refused_with_a_reason(grammar, said):
    with pytest.raises(RefusedError, match=said):
        gbnf_to_lark(grammar)


@pytest.mark.parametrize("digits", ["2", "02", "0" * 5000 + "2"])
def test_noughts_before_a_number_say_nothing(digits):
    grammar = f'root ::= "a"{{{digits}}} "b"{{0,{digits}}} "c"{{{"0" * len(digits)}}}'
    assert all(takes(grammar, text) for text in ("aa", "aab", "aabb"))
    assert not any(takes(grammar, text) for text in ("a", "aaa", "aabbb", "aac"))


@pytest.mark.parametrize("error", [ValueError("in Python"), AttributeError("as well")])
def test_messages_of_python_are_not_repeated(monkeypatch, error):
    def parse(*_):
        raise error

    monkeypatch.setattr("inferd.worker.llama.grammar.gbnf.GrammarParser.parse", parse)
    with pytest.raises(RefusedError, match="^not valid GBNF: it cannot be read$"):
        gbnf_to_lark('root ::= "a"')


@settings(max_examples=200)
@given(st.text(alphabet='root:= "ab\\[]^-(){}|*+?.#1,\nxu0&~'))
def test_any_text_is_converted_or_refused(text):
    for grammar in (text, f'root ::= "a" {text}'):
        with suppress(RefusedError):
            assert gbnf_to_lark(grammar).startswith(
                "start: "
            ) or "\nstart: " in gbnf_to_lark(grammar)


@settings(max_examples=100)
@given(st.text(st.characters(codec="utf-8", min_codepoint=1), min_size=1, max_size=8))
def test_any_text_can_be_spelt_in_escapes(text):
    spelt = "".join(f"\\U{ord(each):08x}" for each in text)
    assert takes(f'root ::= "{spelt}"', text)
    assert takes(f"root ::= [{spelt}]+", text)
