from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from inferd.backend.job import Turn
from inferd.dialects.prompt.template import DEFAULT_INPUT, TemplateInput
from inferd.dialects.prompt.template_caps import TemplateCaps, probe_template
from tests.cases import each_case
from tests.unit.dialects.conversations import CONVERSATIONS
from tests.unit.dialects.templates import (
    ABLE,
    ASKED,
    CALL,
    CALLING,
    CALLING_TWICE,
    NEXT,
    NINE,
    ONE_CALL,
    PARTS,
    PLAIN,
    RESULT,
    SAID,
    STRICT,
    SYSTEM,
    WORDLESS,
    compiled,
)

SWITCHING = PLAIN + "{% if enable_thinking %}<think>{% endif %}"


def able(source):
    return probe_template(compiled(source))


OTHERS = ABLE.replace("in messages %}", "in messages if m.role != 'system' %}")
LAST_SYSTEM = (
    "{% for m in (messages | selectattr('role', 'equalto', 'system') | list)[-1:] %}"
    "{{ m.content }}\n{% endfor %}"
) + OTHERS
BEFORE_ANSWERS = ABLE.replace(
    "in messages %}",
    "in messages if m.role != 'system' or messages[-1].role != 'tool' %}",
)
FIRST_OR_NONE = "{{ 1 / 0 if m.role == 'system' and messages[0].role != 'system' }}"
ONE_OR_THE_OTHER = (
    "{{ 1 / 0 if m.role == 'system' == messages[0].role and loop.index > 2 }}"
)
AT_RESULTS = {"system_at_results"}
PARALLEL = {"parallel_calls"}
CALLS_AT_ALL = {"calls", "parallel_calls"}
FLAGS = CALLS_AT_ALL | {
    "system",
    "later_system",
    "system_at_results",
    "repeated_roles",
    "tools",
}

# --- what a template can say ----------------------------------------------------------


def test_a_template_that_writes_all_it_gets_can_say_all():
    assert able(ABLE) == TemplateCaps(
        input=DEFAULT_INPUT,
        system=True,
        later_system=True,
        system_at_results=True,
        repeated_roles=True,
        tools=True,
        calls=True,
        parallel_calls=True,
        text_beside_calls=True,
        toggles_thinking=False,
        toggles_beside_system=False,
    )


@each_case(
    ("source", "lacking"),
    [
        (PLAIN, {"tools", *CALLS_AT_ALL}),
        (ABLE.replace("{% if tools", "{% if false"), {"tools"}),
        (ABLE.replace("tools | tojson", "tools[0].function.name"), {"tools"}),
        (ONE_CALL, PARALLEL),
        (ABLE.replace("function.name", "function.name if loop.first"), PARALLEL),
        (ABLE.replace("calls or []", "calls if not tools"), CALLS_AT_ALL),
        (
            ABLE.replace("calls or []", "calls if messages[-1].role == 'tool'"),
            CALLS_AT_ALL,
        ),
        (
            ABLE.replace("calls or []", "calls if messages[-1].role != 'tool'"),
            CALLS_AT_ALL,
        ),
        (ABLE.replace("c.function.name", "'f'"), CALLS_AT_ALL),
        ("{% set tools = none %}" + ABLE, {"tools"}),
        ("{% if not tools %}{{ 1 / 0 }}{% endif %}" + ABLE, None),
        ("{% set messages = messages[1:] %}" + ABLE, None),
        ("no template but a name", None),
        ("{{ raise_exception('never') }}", None),
        (
            ABLE.replace("{{ m.content }}", "{{ m.content or 1 / 0 }}"),
            CALLS_AT_ALL,
        ),
        (
            "{% if messages[0].role == 'system' %}{{ 1 / 0 }}{% endif %}" + ABLE,
            {"system", "later_system", "system_at_results"},
        ),
        (
            ABLE.replace(
                "{{ m.r", "{{ 1 / 0 if m.role == 'system' and not loop.first }}{{ m.r"
            ),
            {"later_system"},
        ),
        (LAST_SYSTEM, {"later_system"}),
        (
            ABLE.replace(
                "{{ m.role",
                "{{ 1 / 0 if (loop.previtem or {}).role == 'system' == m.role }}"
                "{{ m.role",
            ),
            {"later_system"},
        ),
        (ABLE.replace("{{ m.role", FIRST_OR_NONE + "{{ m.role"), {"later_system"}),
        (ABLE.replace("{{ m.role", ONE_OR_THE_OTHER + "{{ m.role"), {"later_system"}),
        (BEFORE_ANSWERS, {"system_at_results"}),
        (BEFORE_ANSWERS.replace("!= 'tool'", "!= 'tool' or not tools"), AT_RESULTS),
        (BEFORE_ANSWERS.replace("!= 'tool'", "!= 'tool' or tools"), AT_RESULTS),
    ],
)
def test_what_a_template_leaves_out_or_refuses_it_cannot_say(source, lacking):
    abilities = able(source)
    if lacking is None:
        assert abilities is None
    else:
        assert {each for each in FLAGS if not getattr(abilities, each)} == {*lacking}


@each_case(
    ("source", "wants"),
    [
        (PLAIN, DEFAULT_INPUT),
        (PARTS, TemplateInput(parts=True)),
        ("{% for m in messages %}{{ m.content | list }}{% endfor %}", None),
        (
            ABLE.replace("arguments | tojson", "arguments"),
            TemplateInput(arguments_as_text=True),
        ),
        (NINE, TemplateInput(nine_char_ids=True)),
        (PLAIN + "{{ reasoning_effort }}", TemplateInput(efforts=("low", "medium"))),
        (
            PLAIN + "{{ {'none': 1, 'high': 2}[reasoning_effort or 'none'] / 1 }}",
            TemplateInput(efforts=("none", "high")),
        ),
        (SWITCHING + "{{ reasoning_effort }}", DEFAULT_INPUT),
    ],
)
def test_what_a_template_wants_is_found_out(source, wants):
    abilities = able(source)
    assert (abilities and abilities.input) == wants


@pytest.mark.parametrize(
    "refusal",
    [
        "{{ 1 / 0 if thinking }}",
        "{{ 1 / 0 if not thinking and messages[0].role == 'system' }}",
    ],
)
def test_a_template_that_refuses_a_thought_or_none_has_no_switch(refusal):
    abilities = able(PLAIN + refusal)
    assert not abilities.toggles_thinking
    assert not abilities.toggles_beside_system


def test_objects_are_wanted_where_both_would_do():
    source = ABLE.replace(
        "arguments | tojson", "arguments | string | replace(\"'\", '\"')"
    )
    assert able(source).input == DEFAULT_INPUT


# --- turns that fit -------------------------------------------------------------------


def test_turns_that_a_template_knows_stay_as_they_are():
    turns = [SYSTEM, ASKED, NEXT, CALLING_TWICE, RESULT, RESULT, SYSTEM, NEXT]
    assert able(ABLE).adapted(turns) == turns


def test_system_turns_become_the_users():
    assert able(STRICT).adapted([SYSTEM, ASKED, SAID, NEXT, SYSTEM]) == [
        Turn("user", "Be brief.\n\nWeather?"),
        SAID,
        Turn("user", "And now?\n\nBe brief."),
    ]


def test_a_first_system_turn_stays_where_later_ones_cannot():
    first_alone = replace(able(ABLE), later_system=False)
    assert first_alone.adapted([SYSTEM, SYSTEM, ASKED]) == [
        SYSTEM,
        Turn("user", "Be brief.\n\nWeather?"),
    ]


def test_a_system_turn_becomes_the_users_where_a_result_would_have_it_left_out():
    turns = [SYSTEM, ASKED, CALLING, RESULT]
    fitted = able(BEFORE_ANSWERS).adapted(turns)
    assert fitted == [Turn("user", "Be brief.\n\nWeather?"), CALLING, RESULT]
    assert able(BEFORE_ANSWERS).adapted([*turns, SAID]) == [*turns, SAID]
    assert SYSTEM not in able(BEFORE_ANSWERS).adapted([SYSTEM, ASKED, SYSTEM, RESULT])


def test_runs_become_one_turn_up_to_calls_and_results_stay():
    empty = Turn("assistant", "")
    turns = [ASKED, NEXT, SAID, empty, CALLING, CALLING, RESULT, RESULT, SAID]
    assert replace(able(ABLE), repeated_roles=False).adapted(turns) == [
        Turn("user", "Weather?\n\nAnd now?"),
        Turn("assistant", "It is warm.\n\nLet me look.", calls=(CALL,)),
        CALLING,
        RESULT,
        RESULT,
        SAID,
    ]


def test_words_beside_calls_are_left_out_only_where_a_template_refuses_them():
    assert able(ABLE).adapted([CALLING]) == [CALLING]
    assert able(WORDLESS).adapted([CALLING]) == [Turn("assistant", "", calls=(CALL,))]


WEAKEST = replace(
    able(PLAIN),
    system=False,
    later_system=False,
    system_at_results=False,
    repeated_roles=False,
)


@given(CONVERSATIONS)
@settings(max_examples=50)
def test_whatever_is_put_into_other_turns_nothing_is_lost(turns):
    fitted = WEAKEST.adapted(turns)
    assert [each for each in fitted if each.role == "system"] == []
    assert paragraphs(fitted) == paragraphs(turns)
    assert [each.calls for each in fitted if each.calls] == [
        each.calls for each in turns if each.calls
    ]
    for turn, following in pairwise(fitted):
        assert turn.calls or turn.role != following.role or turn.role == "tool"


def paragraphs(turns):
    return "\n\n".join(each.text for each in turns if each.text)
