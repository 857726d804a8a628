import json

from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from tests.cases import each_case

TOKENS = {"<a>": 3, "<a>b": 4, "</a>": 5}


@each_case(
    ("literal", "expression"),
    [
        ("", '""'),
        ('x "é" \\', r'"x \"é\" \\"'),
        ("\n\x00\u2028", '"\\n\\u0000\u2028"'),
        ("x<a></a>y", '"x<a></a>y"'),
    ],
)
def test_a_text_is_quoted_and_spells_no_special_token(literal, expression):
    assert LarkBuilder(TOKENS).text(literal) == expression


@each_case(
    ("after", "marker", "expression"),
    [
        ("", "", '""'),
        ("", "<a>", "<[3]>"),
        ("", "x<a></a>y", '"x" <[3]> <[5]> "y"'),
        ("", "<a>b", "<[4]>"),
        ("<a>", "\n</a>\n", '"<a>\\n" <[5]> "\\n"'),
        ("<", "a>", '"<a>"'),
        ("<a>", "", '"<a>"'),
    ],
)
def test_special_tokens_stand_in_markers_and_not_in_what_is_before_them(
    after, marker, expression
):
    assert LarkBuilder(TOKENS).marker(marker, after=after) == expression


def test_without_special_tokens_all_is_text():
    assert LarkBuilder().marker("<a>") == '"<a>"'


@each_case(
    ("regex", "body"),
    [
        ("[a-z]+", "/[a-z]+/"),
        ("a/b", r"/a\/b/"),
        (r"a\/b", r"/a\/b/"),
        (r"a\\/b", r"/a\\\/b/"),
        ("a\nb", r"/a\nb/"),
        ("a\\\nb", r"/a\nb/"),
        ("", "/(?:)/"),
    ],
)
def test_a_pattern_stands_between_slashes_on_one_line(regex, body):
    lark = LarkBuilder()
    assert lark.pattern(regex) == "r0"
    assert lark.source("r0") == f"start: r0\nr0: {body}\n"


def test_text_goes_up_to_and_with_a_marker():
    lark = LarkBuilder(TOKENS)
    assert lark.until('"\n') == "r1"
    assert lark.until("!", "[a/]*", ".{2}", without=["b", "c"]) == "r3"
    rules = (
        r"T0: /(?:(?s:.*))/",
        r'r1[suffix="\"\n"]: T0',
        r"T2: /(?:[a\/]*)/ & /(?:.{2})/ & ~/(?s:.*)(?:b|c)(?s:.*)/",
        'r3[suffix="!"]: T2',
    )
    assert lark.source("r1").splitlines() == ["start: r1", *rules]


def test_text_goes_up_to_and_with_a_special_token_and_does_not_spell_it():
    lark = LarkBuilder(TOKENS)
    assert lark.until("</a>") == "T0 <[5]>"
    assert lark.until("\n+</a>x", "[^x]*", without=["b"]) == 'T1 <[5]> "x"'
    rules = (
        r"T0: /(?:(?s:.*))/ & ~/(?s:.*)(?:<\/a>)(?s:.*)/",
        r"T1: /(?:[^x]*)\n\+/ & ~/(?s:.*)(?:\n\+<\/a>x|b)(?s:.*)/",
    )
    assert lark.source("T0").splitlines() == ["start: T0", *rules]


def test_a_terminal_is_what_all_of_several_patterns_match():
    lark = LarkBuilder()
    found = [lark.terminal("a/"), lark.terminal("a", "b", without=["c"])]
    assert found == ["T0", "T1"]
    rules = (r"T0: /a\//", "T1: /a/ & /b/ & ~/(?s:.*)(?:c)(?s:.*)/")
    assert lark.source("T0").splitlines() == ["start: T0", *rules]


def test_json_has_no_free_space_whatever_the_schema_says():
    lark = LarkBuilder()
    assert lark.json({"type": "string", "x-guidance": {"lenient": True}}) == "r0"
    body = lark.source("r0").partition("%json ")[2]
    assert json.loads(body) == {
        "type": "string",
        "x-guidance": {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
        },
    }


def test_a_rule_may_stand_in_its_own_body():
    lark = LarkBuilder()
    inner = lark.rule('"a"')
    assert lark.recursive(lambda name: one_of([inner, f'"(" {name} ")"'])) == "r1"
    assert lark.source("r1") == 'start: r1\nr0: "a"\nr1: (r0 | "(" r1 ")")\n'


def test_rules_that_a_recursive_rule_adds_have_names_of_their_own():
    lark = LarkBuilder()
    assert lark.recursive(lambda name: f"{lark.rule('1')} {name}") == "r0"
    assert lark.source("r0") == "start: r0\nr0: r1 r0\nr1: 1\n"


def test_an_expression_is_repeated_with_text_between():
    lark = LarkBuilder()
    assert one_or_more_calls(lark, '"a" | "b"', "\n") == 'r0 ("\\n" r0){0,127}'
    assert one_or_more_calls(lark, '"c"', "") == "r1{1,128}"
    assert lark.source("x") == 'start: x\nr0: "a" | "b"\nr1: "c"\n'
