from inferd.backend.job import PastCall, Turn
from inferd.dialects.families.deepseek import DEEPSEEK
from inferd.dialects.lark import LarkBuilder
from tests.cases import each_case
from tests.unit.dialects.cases import tools_named

# ruff: noqa: RUF001  # their bars are no ASCII
WEATHER = tools_named(["get_weather", "get_time"])
ASKED = Turn("user", "Hi.")
CALL = PastCall(id="tc-0", name="get_weather", arguments='{"city":"Bern"}')
RESULT = Turn("tool", "9 °C", call_id="tc-0", name="get_weather")
WRITTEN = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    '{"city": "Bern"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)


@each_case(
    ("template", "is_ours"),
    [
        ("{{ '<｜User｜>' + text }}{{ '<｜tool▁sep｜>' + name }}", True),
        ("<｜User｜>", False),
        ("<｜tool▁sep｜>", False),
        ("<｜User｜><｜tool▁sep｜>{% set dsml_token = 1 %}", False),
        ("", False),
    ],
)
def test_a_template_is_known_by_its_users_and_its_calls(template, is_ours):
    assert DEEPSEEK.recognises("deepseek2", template) is is_ours
    assert DEEPSEEK.recognises("qwen2", template) is is_ours


def test_templates_are_told_of_tools_and_calls_in_text_and_write_results_themselves():
    assert DEEPSEEK.tools_as_text is not None
    said = Turn("assistant", "So.", calls=(CALL,))
    later = Turn("system", "Be polite.")
    turns = [Turn("system", "Be brief."), ASKED, said, RESULT, later]
    told, *rest = DEEPSEEK.tools_as_text(turns, WEATHER)
    assert told.role == "system"
    assert told.text.startswith("Be brief.\n\nBe polite.\n\n## Tools\n")
    assert "### get_time\nDescription: Tell the time.\n\nParameters: {" in told.text
    assert rest == [ASKED, Turn("assistant", f"So.{WRITTEN}"), RESULT]
    assert DEEPSEEK.tools_as_text([ASKED], []) == [ASKED]


def test_a_grammar_allows_calls_of_either_version_and_no_mixture():
    lark = LarkBuilder({"<｜tool▁calls▁begin｜>": 1, "<｜tool▁sep｜>": 2})
    source = lark.source(DEEPSEEK.write_calls(lark, WEATHER[:1]))
    assert source.startswith("start: <[1]> (r1")
    assert r'r1: ("<｜tool▁call▁begin｜>" "get_weather" <[2]> r0 ' in source
    assert (
        r'"<｜tool▁call▁begin｜>" "function" <[2]> "get_weather\n```json\n" ' in source
    )


def test_the_token_that_calls_need_is_kept():
    assert "<｜tool▁sep｜>" in DEEPSEEK.markers


def test_a_thought_that_a_template_has_opened_can_be_closed():
    prompt = "<｜User｜>Hi.<｜Assistant｜><think>\n"
    assert DEEPSEEK.open_thought(prompt)
    assert prompt + DEEPSEEK.close_thought == f"{prompt}\n</think>\n\n"


@each_case("thinks", [True, False])
@each_case("turns", [[ASKED], [ASKED, RESULT], [Turn("system", "a")]])
def test_a_prompt_opens_a_thought_unless_the_turn_goes_on(turns, thinks):
    prompt = DEEPSEEK.render(turns, [], thinks)
    assert bool(DEEPSEEK.open_thought(prompt)) is (thinks and turns[-1] is not RESULT)
