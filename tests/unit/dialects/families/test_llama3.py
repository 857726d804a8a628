import json

from hypothesis import given, settings, strategies as st

from inferd.backend.events import Text
from inferd.dialects.families.llama3 import LLAMA3
from inferd.dialects.lark import LarkBuilder
from inferd.output.parser import BlockParser
from tests.cases import each_case
from tests.unit.dialects.cases import tools_named
from tests.unit.dialects.conversations import (
    TEXTS,
    read,
)

PARTS = [
    *(
        ': "f"',
        '"',
        "\\",
        ", ",
        '"id"',
        ": 1",
        '"parameters":',
        "}",
        "{",
        " ",
        "x",
        "\n",
    ),
    *(': "get_weather"', '"type": "function"', "1", "é"),
]
WEATHER = tools_named(["get_weather", "get_time"])
TAG = "<|python_tag|>"


@each_case(
    ("template", "is_ours"),
    [
        ("{{ '<|start_header_id|>' }}{% if tools %}Environment: ipython", True),
        ("<|start_header_id|>", False),
        ("<|start_header_id|>Environment: ipython<function=", False),
        ("<|im_start|>Environment: ipython", False),
        ("", False),
    ],
)
def test_a_template_is_known_by_its_headers_and_its_environment(template, is_ours):
    assert LLAMA3.recognises("llama", template) is is_ours
    assert LLAMA3.recognises("", template) is is_ours


@settings(max_examples=20)
@given(TEXTS)
def test_a_semicolon_in_a_text_is_no_end_of_a_call(text):
    arguments = {"a": f'; {{"name": {text}; {{"name"'}
    written = json.dumps({"name": "f", "parameters": arguments})
    assert read(LLAMA3, f"{written};{written}") == [("f", arguments)] * 2


def test_a_grammar_matches_the_tag_as_the_token_that_it_is():
    lark = LarkBuilder({TAG: 7})
    source = lark.source(LLAMA3.write_calls(lark, WEATHER))
    assert "start: (<[7]>)? " in source
    assert r'": " "\"get_weather\"" ", " "\"parameters\"" ": " r0 "}"' in source
    assert r'": " "\"get_time\"" ", " "\"parameters\"" ": " r1 "}"' in source
    assert '("; " ' in source


def judged(text):
    (region,) = [each for each in LLAMA3.regions if each.classify]
    assert region.classify is not None
    return region.classify(text, WEATHER)


@each_case(
    ("text", "verdict"),
    [
        ('{"name"', None),
        ('{"name": ', None),
        ('{"name": "Zürich', None),
        ('{"name": "a\\"b", "ty', None),
        ('{"name": "f" ', None),
        ('{"name": "f",\n "id": 1', None),
        ('{"name": "f", "id": 12, "para', None),
        ('{"name": "get_weather"', True),
        ('{"name": "get_we\\u0061ther"}', True),
        ('{"name": "f", "parameters" :', True),
        ('{"type": "function", "name": "f", "arguments":', True),
        ('{"name": "f", "x', False),
        ('{"name": "f", "where":', False),
        ('{"name": "f"}', False),
        ('{"name": "f"]', False),
        ('{"name": 7,', False),
        ('{"name": ["f"', False),
        ('{"name" "f"', False),
        ('{"name": "f", "type": "town",', False),
        ('{"name": "f",}', False),
        ('{"name": "' + "f" * 4096, False),
        ('{"name"' + " " * 4096, False),
    ],
)
def test_what_begins_like_a_call_is_judged_as_soon_as_it_can_be(text, verdict):
    assert judged(text) is verdict


@settings(max_examples=60)
@given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join))
def test_no_judgement_is_changed_by_what_follows(text):
    text = '{"name"' + text
    verdicts = [judged(text[:size]) for size in range(len('{"name"'), len(text) + 1)]
    first = next((each for each in verdicts if each is not None), None)
    assert all(each is first for each in verdicts if each is not None)
    assert verdicts[-1] is first


def test_json_that_is_no_call_streams_as_soon_as_that_is_certain():
    parser = BlockParser(LLAMA3.regions, WEATHER)
    assert parser.feed('\n{"name": "Zürich", ') == [Text("\n")]
    assert parser.feed('"is') == [Text('{"name": "Zürich", "is')]
    assert parser.feed('_large": true}') == [Text('_large": true}')]
