import json

import pytest

from inferd.backend.job import Structure
from inferd.worker.llama.grammar import errors as module
from inferd.worker.llama.grammar.build import Grammar, GrammarPart, grammar_of
from inferd.worker.llama.grammar.errors import clean_message, explain_error
from tests.cases import each_case

BAD = 'at 3(5): failed to compile JSON schema: Unimplemented keys: ["bad"]\n   1 | start: r0'


def schema_in(source):
    return json.loads(source[source.index("%json ") + 6 :])


def refuses_bad(source, field):
    """Fail as the compiler does, where a schema holds a keyword."""
    return BAD if '"bad"' in json.dumps(schema_in(source)) else None


def refusal_of(schema, compile_=refuses_bad):
    grammar = grammar_of(Structure(kind="json_schema", source=json.dumps(schema)))
    return str(explain_error(grammar, BAD, compile_))


@each_case(
    ("schema", "pointer"),
    [
        ({"bad": 1}, ""),
        ({"properties": {"a": {}, "b": {"bad": 1}}}, "/properties/b"),
        ({"items": {"items": {"bad": 1}}}, "/items/items"),
        ({"anyOf": [{}, True, {"allOf": [{"bad": 1}]}]}, "/anyOf/2/allOf/0"),
        (
            {"properties": {"a": {"properties": {"b": {"bad": 1}}}}},
            "/properties/a/properties/b",
        ),
    ],
)
def test_the_innermost_schema_that_fails_is_named(schema, pointer):
    said = refusal_of(schema)
    assert said == f'response_format.schema{pointer}: not supported: ["bad"]'


def test_errors_in_referenced_schemas_are_located_there():
    schema = {"$defs": {"x": {"bad": 1}}, "properties": {"a": {"$ref": "#/$defs/x"}}}
    said = refusal_of(schema)
    assert said == 'response_format.schema/$defs/x: not supported: ["bad"]'


def test_the_search_ends_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr(module, "GRAMMAR_ERROR_S", -1)
    said = refusal_of({"items": {"bad": 1}}, compile_=pytest.fail)
    assert said == 'response_format.schema: not supported: ["bad"]'


def test_the_field_is_reported_before_a_crash():
    told: list[str] = []

    def compile_(source, field):
        told.append(field)
        return BAD if source == "bad" else None

    grammar = Grammar(
        "",
        (
            GrammarPart("tools[0].input_schema", "tool", ""),
            GrammarPart("tools[1].input_schema", "tool", "bad"),
        ),
    )
    assert str(explain_error(grammar, BAD, compile_)).startswith(
        "tools[1].input_schema: "
    )
    assert told == ["tools[0].input_schema", "tools[1].input_schema"]


def test_a_grammar_that_is_its_only_part_is_not_tried_twice():
    grammar = Grammar("x", (GrammarPart("grammar", "gbnf", "x"),))
    said = str(explain_error(grammar, "oh", lambda *_: pytest.fail("it was tried")))
    assert said == "grammar: oh"


def test_where_no_part_fails_alone_all_are_named():
    grammar = Grammar(
        "",
        (
            GrammarPart("tools[0].input_schema", "tool", ""),
            GrammarPart("tools[1].input_schema", "tool", ""),
        ),
    )
    said = str(explain_error(grammar, "oh", lambda _, __: None))
    assert said == "response_format and tools: oh"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("lark", "at 2(8): unknown name"), ("regex", "unknown name")],
)
def test_only_in_grammars_of_theirs_do_lines_mean_something(kind, said):
    error = "at 2(8): unknown name\n   1 | start"
    grammar = Grammar("", (GrammarPart("field", kind, "x"),))
    assert str(explain_error(grammar, "", lambda _, __: error)) == f"field: {said}"


@each_case(
    ("error", "said"),
    [
        ("NoExtensionBias\n<non-verbose/>", "nothing can satisfy it"),
        ("lexer error: too many states: 5 >= 5\n<non-verbose/>", "it is too complex"),
        ("Parser Error: Current row has 5999 items; max is 2000", "it is too complex"),
        (
            'Parser Error: token "secret" does not',
            "a token was chosen that may not follow",
        ),
        (
            "panic: index out of bounds\n<backtrace>\n   0: <unknown>",
            "the compiler crashed on it",
        ),
        ("one\n  two", "one two"),
        ("x" * 500, "x" * 300 + "…"),
    ],
)
def test_words_are_one_line_and_quote_no_answer(error, said):
    assert clean_message(error) == said
