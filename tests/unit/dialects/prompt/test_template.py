import datetime as dt
import json
import re

import pytest

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.template import (
    DEFAULT_INPUT,
    ChatTemplate,
    TemplateError,
    TemplateInput,
)
from tests.cases import each_case

LEAP_DAY = dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)
NO_TOKENS: dict[str, str] = {}
CONVERSATION = [
    Turn("system", "Be brief."),
    Turn("user", "<b>Où & 'quand'?</b>"),
]
CALL = PastCall(id="tc-0", name="weather", arguments='{"city":"Zürich"}')
CALLING = Turn("assistant", "Let me look.", calls=(CALL,))
RESULT = Turn("tool", "12 °C", call_id="tc-0", name="weather")
WEATHER = ToolSpec(
    name="weather", description="Ask it.", input_schema='{"type":"object"}'
)
ALL_MESSAGES = "{{ messages | tojson }}"


def compiled(source, tokens=NO_TOKENS):
    return ChatTemplate(source, tokens, lambda: LEAP_DAY)


def render(source, tokens=NO_TOKENS):
    return compiled(source, tokens).render(CONVERSATION)


def test_a_template_sees_messages_tokens_and_that_an_answer_is_due():
    source = (
        "{{ bos_token }}{% for message in messages %}"
        "<|{{ message.role }}|>{{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ eos_token }}"
    )
    assert render(source, {"bos_token": "<s>", "eos_token": ""}) == (
        "<s><|system|>Be brief.\n<|user|><b>Où & 'quand'?</b>\n<|assistant|>"
    )


def test_a_template_is_rendered_anew_each_time():
    template = compiled("{{ messages | length }}{% set x = 1 %}")
    assert template.render(CONVERSATION) == "2"
    assert template.render(CONVERSATION[:1]) == "1"


def test_lines_of_blocks_leave_no_trace():
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_loops_may_be_cut_short():
    source = (
        "{% for n in range(9) %}{% if n == 2 %}{% continue %}{% endif %}"
        "{% if n == 5 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    )
    assert render(source) == "0134"


def test_json_is_not_escaped_for_a_browser():
    assert render(ALL_MESSAGES) == (
        '[{"role": "system", "content": "Be brief."}, '
        '{"role": "user", "content": "<b>Où & \'quand\'?</b>"}]'
    )


@each_case(
    ("options", "written"),
    [
        ("", '{"b": "é", "a": [1]}'),
        ("ensure_ascii=true", '{"b": "\\u00e9", "a": [1]}'),
        ("indent=2", '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}'),
        ("separators=(',', ':')", '{"b":"é","a":[1]}'),
        ("sort_keys=true", '{"a": [1], "b": "é"}'),
        ("false, 1", '{\n "b": "é",\n "a": [\n  1\n ]\n}'),
    ],
)
def test_json_is_written_as_asked(options, written):
    assert render("{{ {'b': 'é', 'a': [1]} | tojson(%s) }}" % options) == written  # noqa: UP031  # braces


def test_the_date_comes_from_outside():
    assert render("{{ strftime_now('%d %b %Y') }}") == "29 Feb 2024"


def test_what_is_marked_for_training_is_written_like_the_rest():
    source = "{% generation %}\n{% set x = 1 %}a{{ x }}\n{% endgeneration %}\nb"
    assert render(source) == "a1\nb"


def test_namespaces_and_dictionaries_can_be_made():
    source = (
        "{% set ns = namespace({'a': 1}, self=2) %}{% set ns.b = dict({'x': 3}, y=4) %}"
        "{{ ns.a }}{{ ns.self }}{{ ns.b.x }}{{ ns.b.y }}"
    )
    assert render(source) == "1234"


# --- tools and thoughts ---------------------------------------------------------------


def test_a_template_sees_calls_and_results_in_the_usual_shape():
    written = compiled("{{ messages | tojson }}").render([CALLING, RESULT])
    assert json.loads(written) == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "tc-0",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Zürich"}},
                }
            ],
        },
        {"role": "tool", "content": "12 °C", "tool_call_id": "tc-0", "name": "weather"},
    ]


def test_a_result_of_an_unknown_tool_has_no_name():
    result = Turn("tool", "12 °C", call_id="x")
    assert "name" not in json.loads(compiled(ALL_MESSAGES).render([result]))[0]


@pytest.mark.parametrize("text", ["no JSON", "[" * 100_000, "9" * 5000])
def test_arguments_that_are_no_json_are_seen_as_text(text):
    turn = Turn("assistant", "", (PastCall(id="", name="f", arguments=text),))
    template = compiled("{{ messages[0].tool_calls[0].function.arguments }}")
    assert template.render([turn]) == text


def test_a_template_sees_tools_in_the_usual_shape():
    written = compiled("{{ tools | tojson }}").render([], [WEATHER])
    assert json.loads(written) == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Ask it.",
                "parameters": {"type": "object"},
            },
        }
    ]


def test_without_tools_and_documents_there_are_none():
    assert render("{{ tools is none }} {{ documents is none }}") == "True True"


@pytest.mark.parametrize("thinks", [True, False])
def test_both_names_of_the_switch_say_whether_to_think(thinks):
    template = compiled("{{ enable_thinking is true }} {{ thinking is true }}")
    assert template.render([], thinks=thinks) == f"{thinks} {thinks}"


# --- what some templates want ---------------------------------------------------------


def test_text_may_be_wanted_in_parts():
    written = compiled(ALL_MESSAGES).render([RESULT], wants=TemplateInput(parts=True))
    assert json.loads(written)[0]["content"] == [{"type": "text", "text": "12 °C"}]


def test_arguments_may_be_wanted_as_text():
    template = compiled("{{ messages[0].tool_calls[0].function.arguments }}")
    written = template.render([CALLING], wants=TemplateInput(arguments_as_text=True))
    assert written == '{"city": "Zürich"}'


@each_case("call_id", ["tc-0", "", "abcdefghij", "abcdefgh\n", "é23456789"])
def test_an_id_may_be_wanted_of_nine_characters_and_stays_one(call_id):
    turns = [
        Turn("assistant", "", (PastCall(id=call_id, name="f", arguments="{}"),)),
        Turn("tool", "", call_id=call_id),
    ]
    template = compiled(
        "{{ messages[0].tool_calls[0].id }} {{ messages[1].tool_call_id }}"
    )
    first, second = template.render(
        turns, wants=TemplateInput(nine_char_ids=True)
    ).split()
    assert first == second != call_id
    assert re.fullmatch("[a-zA-Z0-9]{9}", first)
    assert template.render(turns) == f"{call_id} {call_id}"


def test_an_id_of_nine_characters_stays_as_it_is():
    result = Turn("tool", "", call_id="abcDEF123")
    template = compiled("{{ messages[0].tool_call_id }}")
    assert (
        template.render([result], wants=TemplateInput(nine_char_ids=True))
        == "abcDEF123"
    )


@pytest.mark.parametrize(
    ("wants", "thinks", "effort"),
    [
        (DEFAULT_INPUT, True, ""),
        (TemplateInput(efforts=("low", "high")), False, "low"),
        (TemplateInput(efforts=("low", "high")), True, "high"),
    ],
)
def test_an_effort_is_told_where_it_is_wanted(wants, thinks, effort):
    template = compiled("{{ reasoning_effort }}")
    assert template.render([], thinks=thinks, wants=wants) == effort


# --- refusals -------------------------------------------------------------------------


def test_a_refusal_is_told_in_the_templates_own_words():
    with pytest.raises(TemplateError, match=r"^the chat template failed: No system!$"):
        render("{{ raise_exception('No system!') }}")


def test_a_failure_without_words_is_told_by_its_kind():
    with pytest.raises(TemplateError, match=r"^the chat template failed: MemoryError$"):
        render(f"{{% set n = {2**62} %}}{{{{ 'a' | center(n) }}}}")


@each_case(
    "source",
    [
        *("{{", "{% for %}", "{% if x %}", "{{ x | no_such_filter }}", "{% do x %}"),
        "{{" + "(" * 5000,
        "{% for x in 'a' %}" * 25 + "{% endfor %}" * 25,
        "{% if x %}" * 120 + "{% endif %}" * 120,
    ],
    ids=lambda source: source[:20],
)
def test_a_template_that_does_not_compile_is_refused(source):
    with pytest.raises(TemplateError, match=r"^the chat template does not compile: "):
        compiled(source)


@each_case(
    "source",
    [
        *("{{ 1 / 0 }}", "{{ nothing.at_all }}", "{{ messages[0] + 1 }}", "{{ 5() }}"),
        *("{% include 'x' %}", "{% import 'os' as os %}", "{% extends 'x' %}"),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_that_fails_is_one_error(source):
    with pytest.raises(TemplateError, match=r"^the chat template failed: "):
        render(source)


@each_case(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ ['']|map(attribute='__class__.__mro__')|list }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__['os'] }}",
        "{{ strftime_now.__globals__.dt }}",
        "{{ raise_exception.__code__.co_consts }}",
        "{{ self._TemplateReference__context.environment }}",
        "{{ messages.__setitem__(0, 1) }}",
        "{{ namespace(__html__=lipsum) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
    ],
)
def test_no_way_leads_out_of_the_sandbox(source):
    with pytest.raises(TemplateError, match="unsafe"):
        render(source)


@each_case(
    "source",
    [
        *("''.__class__", "messages.__class__", "lipsum.__globals__", "self.__init__"),
        *("'{0.__class__}'.format(1)", "'x'|attr('__class__')", "messages.append"),
    ],
)
def test_what_is_unsafe_is_not_even_written(source):
    assert render("{{ %s }}" % source) == ""  # noqa: UP031  # braces


@each_case(
    "change",
    [
        *("messages.append(1)", "messages.clear()", "messages.pop()", "[2, 1].sort()"),
        *("messages[0].update({'role': 'x'})", "messages[0].pop('role')"),
        *("messages[0].setdefault('x', 1)", "messages.extend([1])"),
    ],
)
def test_nothing_that_is_given_can_be_changed(change):
    with pytest.raises(TemplateError, match="unsafe"):
        render(f"{{% set _ = {change} %}}")


def test_nothing_that_is_given_can_be_changed_by_its_class():
    with pytest.raises(TemplateError, match="no attribute 'update'"):
        render("{{ dict.update(messages[0], {'content': 'x'}) }}")


# --- bounds ---------------------------------------------------------------------------


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr("inferd.dialects.prompt.template.TEMPLATE_OUTPUT_CHARS", 10)


@pytest.mark.parametrize(
    "source",
    [
        "01234567890",
        "{% for _ in range(11) %}x{% endfor %}",
        "{% for _ in range(100) %}{% for _ in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 11 }}",
    ],
)
def test_output_over_the_bound_is_cut_off(bound, source):
    template = compiled(source)
    with pytest.raises(TemplateError, match=r"^the chat template wrote over 10 char"):
        template.render(CONVERSATION)


def test_output_up_to_the_bound_is_kept(bound):
    assert render("{% for _ in range(10) %}x{% endfor %}") == "x" * 10


def test_a_range_is_bounded_too():
    with pytest.raises(TemplateError, match="Range too big"):
        render("{% for _ in range(10 ** 9) %}{% endfor %}")
