from inferd.backend.job import PastCall, Turn
from inferd.dialects.families.granite import GRANITE
from inferd.dialects.lark import LarkBuilder
from tests.cases import each_case
from tests.unit.dialects.cases import tools_named

WEATHER = tools_named(["get_weather", "get_time"])
ASKED = Turn("user", "Hi.")
BERN = PastCall(id="tc-0", name="get_weather", arguments='{"city":"Bern"}')
CALLING = Turn("assistant", "So.", calls=(BERN, BERN))
RESULT = Turn("tool", "9 °C", call_id="tc-0", name="get_weather")
LISTED = '{"name": "get_weather", "arguments": {"city": "Bern"}}'


@each_case(
    ("architecture", "template", "is_ours"),
    [
        ("granite", "{{ '<|start_of_role|>' + message.role }}", True),
        ("", "<|start_of_role|>", True),
        ("granitehybrid", "", True),
        ("granite", "<|im_start|>", False),
        ("llama", "", False),
    ],
)
def test_a_template_is_known_by_its_roles(architecture, template, is_ours):
    assert GRANITE.recognises(architecture, template) is is_ours


def test_version_3_is_told_of_tools_in_a_turn_that_the_system_turn_begins():
    assert GRANITE.tools_as_text is not None
    system = Turn("system", "Be brief.")
    told, *rest = GRANITE.tools_as_text([system, ASKED], WEATHER[1:])
    begin, _, tools = told.text.partition("[\n")
    role = "<|start_of_role|>available_tools<|end_of_role|>"
    assert begin == f"Be brief.<|end_of_text|>\n{role}"
    assert tools.startswith('    {\n        "type": "function",\n')
    assert rest == [ASKED]


def test_version_3_is_told_who_it_is_where_nobody_else_tells():
    assert GRANITE.tools_as_text is not None
    told, *rest = GRANITE.tools_as_text([ASKED], WEATHER)
    assert told.role == "system"
    assert told.text.startswith("You are Granite, developed by IBM. ")
    assert rest == [ASKED]


def test_a_thought_is_asked_for_in_the_words_of_version_3():
    system = Turn("system", "Be brief.")
    asked = "\nRespond to every user query in a comprehensive and detailed way. "
    prompt = GRANITE.render([system, ASKED, CALLING, RESULT], [], True)
    assert prompt.startswith(f"<|start_of_role|>system<|end_of_role|>Be brief.{asked}")
    assert f"So.<|tool_call|>[{LISTED}, {LISTED}]<|end_of_text|>\n" in prompt
    assert "<|start_of_role|>tool<|end_of_role|>9 °C<|end_of_text|>\n" in prompt
    assert "You are a helpful AI assistant." + asked in GRANITE.render(
        [ASKED], [], True
    )


def test_version_3_has_calls_and_results_in_plain_turns():
    assert GRANITE.tools_as_text is not None
    assert GRANITE.tools_as_text([ASKED, CALLING, RESULT], []) == [
        ASKED,
        Turn("assistant", f"So.<|tool_call|>[{LISTED}, {LISTED}]"),
        Turn("tool", "9 °C"),
    ]


def test_a_grammar_allows_calls_of_either_version():
    lark = LarkBuilder({"<|tool_call|>": 5, "<tool_call>": 6})
    source = lark.source(GRANITE.write_calls(lark, WEATHER))
    assert 'start: (<[5]> "[" ' in source
    assert r'<[6]> "\n"' in source
