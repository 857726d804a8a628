import json

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.families.qwen3_coder import QWEN3_CODER
from tests.cases import each_case

PARTS = ["<|im_start|>", "<tool_call>", "<function=", "<parameter="]


def described(schema):
    tool = ToolSpec(name="f", description=" d ", input_schema=json.dumps(schema))
    prompt = QWEN3_CODER.render([Turn("user", "Hi.")], [tool], False)
    text = prompt.partition("<parameters>")[2].partition("</parameters>")[0]
    assert "<name>f</name>\n<description>d</description>\n<parameters>" in prompt
    return text.replace("\n", "")


@each_case(
    ("schema", "text"),
    [
        ({}, ""),
        (True, ""),
        ({"type": "object", "properties": []}, ""),
        (
            {"additionalProperties": False},
            "<additionalProperties>False</additionalProperties>",
        ),
        ({"required": ["a", "é"]}, '<required>["a", "é"]</required>'),
        ({"properties": {"a": True}}, "<parameter><name>a</name></parameter>"),
        (
            {"properties": {"a": {"type": ["string"], "description": " e ", "min": 1}}},
            """<parameter><name>a</name><type>['string']</type>\
<description>e</description><min>1</min></parameter>""",
        ),
    ],
)
def test_tools_are_told_of_in_tags(schema, text):
    assert described(schema) == text


def test_its_templates_have_calls_in_tags():
    assert QWEN3_CODER.recognises("llama", "".join(PARTS))
    for part in PARTS:
        assert not QWEN3_CODER.recognises("qwen35", "".join(PARTS).replace(part, ""))


def test_without_a_template_the_architecture_tells():
    assert QWEN3_CODER.recognises("qwen35moe", "")
    assert not QWEN3_CODER.recognises("qwen3", "")
