import datetime as dt

import pytest

from inferd.dialects.template import ChatTemplate, TemplateError
from inferd.wire.requests import ChatMessage

LEAP_DAY = dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)
NO_TOKENS: dict[str, str] = {}
CONVERSATION = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "<b>Où & 'quand'?</b>"),
]


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
    assert render("{{ messages | tojson }}") == (
        '[{"role": "system", "content": "Be brief."}, '
        '{"role": "user", "content": "<b>Où & \'quand\'?</b>"}]'
    )


def test_json_may_be_indented_and_be_ascii():
    assert render("{{ {'a': 'é'} | tojson(indent=2) }}") == '{\n  "a": "é"\n}'
    assert render("{{ 'é' | tojson(ensure_ascii=true) }}") == '"\\u00e9"'


def test_the_date_comes_from_outside():
    assert render("{{ strftime_now('%d %b %Y') }}") == "29 Feb 2024"


def test_a_refusal_is_told_in_the_templates_own_words():
    with pytest.raises(TemplateError, match=r"^the chat template failed: No system!$"):
        render("{{ raise_exception('No system!') }}")


@pytest.mark.parametrize(
    "source",
    [
        *("{{", "{% for %}", "{% if x %}", "{{ x | no_such_filter }}", "{% do x %}"),
        "{{" + "(" * 5000,
        "{% for x in 'a' %}" * 25 + "{% endfor %}" * 25,
        "{% if x %}" * 120 + "{% endif %}" * 120,
        "{{ 10 ** 10000 }}",
    ],
    ids=lambda source: source[:20],
)
def test_a_template_that_does_not_compile_is_refused(source):
    with pytest.raises(TemplateError, match=r"^the chat template does not compile: "):
        compiled(source)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    ],
)
def test_no_way_leads_out_of_the_sandbox(source):
    with pytest.raises(TemplateError, match="unsafe"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        *("''.__class__", "messages.__class__", "lipsum.__globals__", "self.__init__"),
        *("'{0.__class__}'.format(1)", "'x'|attr('__class__')", "messages.append"),
    ],
)
def test_what_is_unsafe_is_not_even_written(source):
    assert render("{{ %s }}" % source) == ""  # noqa: UP031  # braces


@pytest.mark.parametrize(
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


# --- bounds ---------------------------------------------------------------------------


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr("inferd.dialects.template.TEMPLATE_OUTPUT_CHARS", 10)


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
