import json

from hypothesis import given, settings, strategies as st

from inferd.backend.job import PastCall, ToolSpec
from inferd.dialects.calls.tagged_syntax import format_call, format_value, read_calls
from inferd.dialects.dialect import ParsedCall
from inferd.dialects.schema import reader
from tests.cases import each_case
from tests.unit.strategies import ANY_JSON

BEGIN, END = "<tool_call>\n", "</tool_call>"
NAMES = st.text("abc_-é", min_size=1, max_size=3)
FRAGMENTS = [
    *("<function=", "f", ">", "\n", "<parameter=", "a", "</parameter>", "</function>"),
    *("1", '"', "True", " "),
]
TYPED = {
    "text": {"type": "string"},
    "n": {"type": "integer"},
    "ok": {"type": "boolean"},
    "may": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "one": {"enum": ["1", "2"]},
    "place": {"$ref": "#/$defs/place"},
    "code": {"allOf": [{"$ref": "#/$defs/code"}]},
}


def tool(properties, **rest):
    schema = {"type": "object", "properties": properties, **rest}
    return ToolSpec(name="f", description="", input_schema=json.dumps(schema))


def between(text):
    return text.removeprefix(BEGIN).removesuffix(END)


def written(**arguments):
    call = PastCall(id="", name="f", arguments=json.dumps(arguments))
    return between(format_call(call))


@settings(max_examples=25)
@given(st.dictionaries(NAMES, st.text(max_size=9), max_size=3))
def test_text_is_read_as_it_was_written(arguments):
    properties = {name: {"type": "string"} for name in arguments}
    assert read_calls(written(**arguments), [tool(properties)]) == [
        ParsedCall("f", arguments)
    ]


@settings(max_examples=25)
@given(st.dictionaries(NAMES, ANY_JSON.filter(lambda v: not isinstance(v, str))))
def test_json_is_read_as_it_was_written(arguments):
    kinds = {"type": ["number", "boolean", "null", "array", "object"]}
    properties = dict.fromkeys(arguments, kinds)
    assert read_calls(written(**arguments), [tool(properties)]) == [
        ParsedCall("f", arguments)
    ]


@each_case(
    ("name", "text", "value"),
    [
        ("text", "12", "12"),
        ("text", "True", "True"),
        ("text", '"a"', '"a"'),
        ("n", "12", 12),
        ("n", " [1] ", [1]),
        ("n", '"12"', "12"),
        ("ok", "True", True),
        ("ok", "false", False),
        ("ok", "None", None),
        ("may", "null", None),
        ("may", "None", "None"),
        ("may", "12", "12"),
        ("either", "12", 12),
        ("either", "1.5", "1.5"),
        ("either", "twelve", "twelve"),
        ("one", "1", "1"),
        ("place", "[1]", [1]),
        ("code", "80331", "80331"),
        ("unknown", "12", 12),
        ("unknown", "True", "True"),
        ("unknown", '"12"', '"12"'),
        ("unknown", "[1", "[1"),
    ],
)
def test_a_value_is_what_its_schema_says(name, text, value):
    place = {"type": "array", "items": {"type": "integer"}}
    code = {"type": "string"}
    tools = [tool(TYPED, **{"$defs": {"place": place, "code": code}})]
    call = f"<function=f>\n<parameter={name}>\n{text}\n</parameter>\n</function>"
    assert read_calls(call, tools) == [ParsedCall("f", {name: value})]


@each_case(
    ("text", "value"),
    [
        ("a", "a"),
        ("\na\n", "a"),
        ("\n\n a\n\n", "\n a\n"),
        ("\n", ""),
        ("", ""),
        ("\n\n", ""),
        ("\n</parameter>\n", "</parameter>"),
        ("a</parameter>b</function>", "a</parameter>b</function>"),
    ],
)
def test_a_newline_on_each_side_is_no_part_of_a_value(text, value):
    call = f"<function=f><parameter=a>{text}</parameter></function>"
    assert read_calls(call, []) == [ParsedCall("f", {"a": value})]


@each_case(
    "text",
    [
        "",
        "f",
        "<function=f>",
        "<function=></function>",
        "<function=f></function> and more",
        "<function=f>text</function>",
        "<function=f><parameter=a>1</function>",
        "<function=f><parameter=a>1</parameter>",
        "<function=f><parameter=>1</parameter></function>",
        "<function=f><parameter=n>two</parameter></function>",
        "<function=f><parameter=b>" + "[" * 99 + "]" * 99 + "</parameter></function>",
        '{"name": "f", "arguments": {}}',
    ],
)
def test_what_is_not_plainly_calls_is_none(text):
    tools = [tool({"n": {"type": "integer"}, "b": {"type": "array"}})]
    deep = text.replace("[" * 99, "[" * 999)
    assert read_calls(deep, tools) is None


def test_several_calls_may_stand_in_one_pair_of_markers():
    calls = "\n<function=f>\n</function>\n<function=g>\n</function>\n"
    assert read_calls(calls, []) == [ParsedCall("f", {}), ParsedCall("g", {})]


def test_a_long_text_without_its_end_takes_no_time():
    begin = "<function=f>\n<parameter=a>\n"
    for text in ("\n" * 200_000, "</parameter>" * 20_000, " \n" * 100_000):
        assert read_calls(begin + text, []) is None


@settings(max_examples=60)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_any_text_is_calls_or_none(text):
    calls = read_calls(text, [tool(TYPED)])
    assert calls is None or all(isinstance(call, ParsedCall) for call in calls)


def test_values_stand_as_in_python_but_for_lists_and_objects():
    values = ["a\nb", True, None, 1.5, ["é", True], {"a": None}]
    assert [*map(format_value, values)] == [
        *("a\nb", "True", "None", "1.5"),
        *('["é", true]', '{"a": null}'),
    ]


def test_json_may_hold_tags_in_its_strings_and_text_may_not():
    quoted = '["</parameter><parameter=b>"]'
    call = f"<function=f><parameter=a>{quoted}</parameter></function>"
    assert read_calls(call, []) == [
        ParsedCall("f", {"a": ["</parameter><parameter=b>"]})
    ]
    text = call.replace("[", "")
    assert read_calls(text, []) == [ParsedCall("f", {"a": '"', "b": '"]'})]


def test_what_is_given_twice_is_not_plainly_one_thing():
    one, two = (f"<parameter=a>{n}</parameter>" for n in (1, 2))
    assert read_calls(f"<function=f>{one}</function>", []) == [
        ParsedCall("f", {"a": 1})
    ]
    assert read_calls(f"<function=f>{one}{two}</function>", []) is None
    twice = '<function=f><parameter=a>{"b":1,"b":1}</parameter></function>'
    assert read_calls(twice, []) is None
    (text,) = read_calls(twice, [tool({"a": {"type": "string"}})]) or ()
    assert text.arguments == {"a": '{"b":1,"b":1}'}


def test_an_argument_that_is_not_listed_is_read_as_others_may_be():
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    tools = [ToolSpec(name="f", description="", input_schema=json.dumps(free))]
    call = "<function=f><parameter=a>12</parameter></function>"
    assert read_calls(call, tools) == [ParsedCall("f", {"a": "12"})]


def test_the_schema_of_a_tool_is_read_once_for_all_calls_of_it(monkeypatch):
    read = []

    def noting(text, decoded=reader.parse_json_strict):
        read.append(text)
        return decoded(text)

    monkeypatch.setattr(reader, "parse_json_strict", noting)
    one = tool(TYPED)
    calls = read_calls(f"<function={one.name}></function>" * 1000, [one])
    assert calls is not None
    assert (len(calls), read) == (1000, [one.input_schema])
