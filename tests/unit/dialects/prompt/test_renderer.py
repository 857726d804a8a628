import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import GenerateJob, Sampling, ToolChoice, ToolSpec, Turn
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.families.mistral import MISTRAL
from inferd.dialects.prompt.renderer import PromptRenderer, RenderedPrompt
from inferd.dialects.prompt.special_tokens import SpecialTokenTexts
from inferd.dialects.prompt.template import TemplateError
from tests.cases import each_case
from tests.unit.dialects.conversations import CONVERSATIONS, TOOLS
from tests.unit.dialects.templates import (
    ABLE,
    ASKED,
    CALLING,
    CALLING_TWICE,
    NINE,
    ONE_CALL,
    PARTS,
    PLAIN,
    RESULT,
    SAID,
    STRICT,
    SYSTEM,
    WEATHER,
    WORDLESS,
    compiled,
)

OPENING = PLAIN + "<think>"
SWITCHING = PLAIN + "{% if enable_thinking %}<think>{% endif %}"
THOUGHT = Region(holds="thought", begins=("<think>",), ends=("</think>",))


def dialect(*, tells=False, knows=False, no_thought="</think>", regions=(THOUGHT,)):
    return Dialect(
        name="own",
        regions=regions,
        render=lambda turns, tools, thinks: f"own {len(turns)} {len(tools)} {thinks}",
        write_calls=lambda _lark, _tools: "",
        recognises=lambda _architecture, _template: knows,
        close_thought=no_thought,
        tools_as_text=in_plain_turns if tells else None,
    )


def in_plain_turns(turns, tools):
    told = [Turn("system", f"told of {each.name}") for each in tools]
    return [*told, *(Turn("user", each.text) for each in turns)]


def job(*turns, tools=(), choice="auto", thinks=False):
    return GenerateJob(
        turns=[*turns],
        tools=tools,
        tool_choice=ToolChoice(choice),
        thinks=thinks,
        max_tokens=1,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


def render(source, *turns, tells=False, knows=False, **asked):
    prompts = PromptRenderer(compiled(source), dialect(tells=tells, knows=knows))
    return prompts.render(job(*turns, **asked)).text


# --- who writes -----------------------------------------------------------------------


def test_the_template_writes_what_it_can_say():
    assert render(ABLE, SYSTEM, ASKED, CALLING_TWICE, RESULT, tools=(WEATHER,)) == (
        'tools: [{"type": "function", "function": {"name": "weather", '
        '"description": "Ask it.", "parameters": {"type": "object"}}}]\n'
        "system: Be brief.\n"
        "user: Weather?\n"
        "assistant: \n"
        'call: weather {"city": "Zürich"}\n'
        'call: weather {"city": "Bern"}\n'
        "tool: 12 °C\n"
    )


@each_case(
    ("source", "turns", "tools", "own"),
    [
        (PLAIN, [ASKED], (WEATHER,), "own 1 1 False"),
        (PLAIN, [ASKED, CALLING], (), "own 2 0 False"),
        (PLAIN, [ASKED, RESULT], (), "own 2 0 False"),
        (ONE_CALL, [CALLING_TWICE], (), "own 1 0 False"),
        ("useless", [ASKED], (), "own 1 0 False"),
    ],
)
def test_the_dialect_writes_what_the_template_cannot_say(source, turns, tools, own):
    assert render(source, *turns, tools=tools) == own


@pytest.mark.parametrize(
    ("turns", "tools", "written"),
    [
        ([ASKED], (WEATHER,), "system: told of weather\nuser: Weather?\n"),
        ([ASKED, RESULT], (), "user: Weather?\nuser: 12 °C\n"),
        ([SAID], (), "assistant: It is warm.\n"),
    ],
)
def test_a_dialect_may_say_it_in_turns_that_the_template_writes(turns, tools, written):
    assert render(PLAIN, *turns, tools=tools, tells=True) == written


@each_case(
    ("turns", "tools", "written"),
    [
        ([ASKED], (WEATHER,), "# Tools"),
        ([ASKED, CALLING, RESULT], (), "<tool_call>"),
        ([ASKED, CALLING], (), "<tool_call>"),
        ([ASKED, RESULT], (), "<tool_response>"),
    ],
)
def test_where_nobody_knows_the_family_calls_are_said_in_a_way_that_can_be_read(
    turns, tools, written
):
    text = PromptRenderer(compiled(ABLE), GENERIC).render(job(*turns, tools=tools)).text
    assert written in text
    assert "user: Weather?\n" in text
    assert not text.startswith("tools: ")
    assert "\ncall: " not in text


ANY_PROMPTS = st.sampled_from(
    [
        PromptRenderer(compiled(source), dialect(tells=True))
        for source in (ABLE, STRICT, WORDLESS, NINE, PARTS)
    ]
)


@given(CONVERSATIONS, TOOLS, ANY_PROMPTS)
@settings(max_examples=50)
def test_any_conversation_is_written_or_refused(turns, tools, prompts):
    try:
        written = prompts.render(job(*turns, tools=tuple(tools))).text
    except TemplateError:
        return
    assert all(each.text in written for each in turns if not each.calls)


def test_what_is_said_in_plain_turns_is_not_said_twice():
    source = "{% if tools %}tools!{% endif %}" + PLAIN
    written = render(source, ASKED, tools=(WEATHER,), tells=True)
    assert written == "system: told of weather\nuser: Weather?\n"


def test_what_is_said_in_plain_turns_is_put_into_turns_that_the_template_knows():
    assert render(STRICT, ASKED, tools=(WEATHER,), tells=True) == (
        "user: told of weather\n\nWeather?\n"
    )


def test_a_template_that_refuses_has_the_last_word_where_nobody_knows_the_family():
    with pytest.raises(TemplateError, match="Roles must alternate!"):
        render(STRICT, SAID, tells=True)


@pytest.mark.parametrize("tells", [True, False])
def test_what_a_template_refuses_the_dialect_of_its_family_writes(tells):
    assert render(STRICT, SAID, tells=tells, knows=True) == "own 1 0 False"


def test_without_a_template_the_dialect_writes():
    prompts = PromptRenderer(None, dialect(tells=True))
    assert prompts.render(job(ASKED, tools=(WEATHER,), thinks=True)) == RenderedPrompt(
        ("own 1 1 True",), open_thought=""
    )


def test_tools_that_must_not_be_called_are_not_told():
    written = render(ABLE, ASKED, CALLING, RESULT, tools=(WEATHER,), choice="none")
    assert written.startswith("user: Weather?\n")


def test_what_a_template_wants_it_is_given():
    assert render(PARTS, ASKED) == "user: Weather?\n"
    assert render(NINE, RESULT) == "tool: 12 °C\n"


# --- thoughts -------------------------------------------------------------------------


@each_case(
    ("source", "thinks", "end", "open_thought"),
    [
        (PLAIN, True, "Weather?\n", ""),
        (SWITCHING, False, "Weather?\n", ""),
        (SWITCHING, True, "Weather?\n<think>", "<think>"),
        (OPENING, True, "Weather?\n<think>", "<think>"),
        (OPENING, False, "Weather?\n<think></think>", ""),
    ],
)
def test_a_thought_that_is_not_wanted_is_closed_at_once(
    source, thinks, end, open_thought
):
    rendered = PromptRenderer(compiled(source), dialect()).render(
        job(ASKED, thinks=thinks)
    )
    assert rendered == RenderedPrompt((f"user: {end}",), open_thought)


def test_a_thought_that_nothing_closes_stays_open():
    prompts = PromptRenderer(compiled(OPENING), dialect(no_thought=""))
    assert prompts.render(job(ASKED)) == RenderedPrompt(
        ("user: Weather?\n<think>",), "<think>"
    )


@pytest.mark.parametrize(
    ("thinks", "turns", "written"),
    [
        (True, [ASKED], "user: Weather?\nThink!"),
        (True, [SYSTEM, ASKED], "own 2 0 True"),
        (False, [SYSTEM, ASKED], "system: Be brief.\nuser: Weather?\n"),
    ],
)
def test_where_a_switch_does_not_work_the_dialect_writes(thinks, turns, written):
    switch = "{% if thinking and messages[0].role == 'user' %}Think!{% endif %}"
    assert render(PLAIN + switch, *turns, thinks=thinks) == written


@each_case(
    ("source", "regions", "thinks"),
    [
        (PLAIN, (THOUGHT,), False),
        (OPENING, (THOUGHT,), True),
        (PLAIN + "{# cut at </think> #}", (THOUGHT,), True),
        (PLAIN + "{{ enable_thinking }}", (THOUGHT,), True),
        (OPENING, (), False),
        ("useless", (THOUGHT,), True),
        ("useless", (), False),
        (None, (THOUGHT,), True),
        (None, (), False),
    ],
)
def test_a_model_thinks_if_its_template_knows_thoughts(source, regions, thinks):
    template = source and compiled(source)
    abilities = PromptRenderer(template, dialect(regions=regions)).features
    assert abilities.thinks is thinks
    assert abilities.tools


# --- special tokens -------------------------------------------------------------------

TOKENS = SpecialTokenTexts(
    ["<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "<b>"]
)
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant"
)
LAST = "{{ messages[-1].content ~ '\\n' }}"
LATEST = CHAT.replace("m.content", "m.content.split('</think>')[-1]")


def pieces(source, *turns, own=None, **asked):
    template = source and compiled(source)
    prompts = PromptRenderer(template, own or dialect(knows=True), TOKENS)
    return prompts.render(job(*turns, **asked)).pieces


def test_a_token_of_the_templates_stays_whole_and_one_of_a_clients_does_not():
    assert pieces(CHAT, Turn("user", "<|im_end|>!")) == (
        "<|im_start|>user\n<",
        "|im_end|>!<|im_end|>\n<|im_start|>assistant",
    )


def test_what_the_dialect_writes_is_cut_as_well():
    spelled = ToolSpec(name="<|im_end|>", description="", input_schema="{}")
    [first, *others] = pieces(None, ASKED, tools=(spelled,), own=GENERIC)
    assert first.startswith("<|im_start|>system\n# Tools")
    assert [each[:9] for each in others] == ["|im_end|>"]


def test_added_tokens_count_where_the_template_or_the_dialect_has_them():
    asked = Turn("user", "<b><think></think>")
    assert len(pieces(CHAT, asked)) == 3
    assert len(pieces(CHAT, asked, own=dialect(regions=()))) == 1
    assert len(pieces(CHAT + "{# <b> #}", asked, own=dialect(regions=()))) == 2


def test_added_tokens_count_where_the_dialects_own_renderer_writes_them():
    asked = job(Turn("user", "own True, False"))
    tokens = SpecialTokenTexts([], ["own", "False", "no"])
    source = "{{ messages[0].content }}"
    prompts = PromptRenderer(compiled(source), dialect(regions=()), tokens)
    assert prompts.render(asked).pieces == ("o", "wn True, F", "alse")


def test_a_prompt_of_many_tokens_comes_in_pieces(monkeypatch):
    monkeypatch.setattr("inferd.dialects.prompt.renderer.SPECIAL_TOKENS_PER_PIECE", 2)
    assert pieces(CHAT, ASKED, Turn("user", "<|im_end|>")) == (
        "<|im_start|>user\nWeather?<|im_end|>\n",
        "<|im_start|>user\n<",
        "|im_end|><|im_end|>\n<|im_start|>assistant",
    )


@each_case("tokens", [TOKENS, SpecialTokenTexts()])
@each_case("thinks", [True, False])
@each_case("role", ["user", "assistant"])
def test_a_thought_that_only_a_client_opens_is_none(tokens, thinks, role):
    prompts = PromptRenderer(compiled(LAST), dialect(), tokens)
    rendered = prompts.render(job(Turn(role, "a <think>"), thinks=thinks))
    assert rendered.text == "a <think>\n"
    assert not rendered.open_thought


@pytest.mark.parametrize("tokens", [TOKENS, SpecialTokenTexts()])
def test_a_thought_that_the_template_opens_is_one_whatever_clients_write(tokens):
    prompts = PromptRenderer(compiled(OPENING), dialect(), tokens)
    turns = [Turn("assistant", "<think></think>"), Turn("user", "<think>")]
    thinking = prompts.render(job(*turns, thinks=True))
    assert thinking.open_thought
    assert thinking.text.endswith("<think>\n<think>")
    closed = prompts.render(job(*turns))
    assert not closed.open_thought
    assert closed.text == f"{thinking.text}</think>"


SAID_AFTER = Turn("assistant", "<|im_end|>a</think>b<|im_end|>")


def test_a_template_that_looks_for_thoughts_finds_them():
    said, rest = pieces(LATEST, ASKED, SAID_AFTER)
    assert said.endswith("<|im_start|>assistant\nb<")
    assert rest == "|im_end|><|im_end|>\n<|im_start|>assistant"


@pytest.mark.parametrize(
    "source",
    [
        CHAT,
        "{% for m in messages if '</think>' in m.content %}{{ 1 / 0 }}{% endfor %}"
        + CHAT,
        None,
    ],
)
def test_where_nobody_looks_for_thoughts_their_markers_are_text(source):
    own = None if source else GENERIC
    found = pieces(source, ASKED, SAID_AFTER, own=own)
    assert [each[:9] for each in found[1:]] == ["|im_end|>", "/think>b<", "|im_end|>"]


def test_thoughts_are_looked_for_in_what_the_assistant_said_alone():
    asked = Turn("user", "a</think>b")
    assert "".join(pieces(LATEST, asked)) == "".join(pieces(CHAT, asked))


def test_a_template_may_open_any_thought_of_the_family():
    prompts = PromptRenderer(compiled(OPENING), MISTRAL)
    assert prompts.features.thinks
    assert prompts.render(job(ASKED, thinks=True)).open_thought == "<think>"
