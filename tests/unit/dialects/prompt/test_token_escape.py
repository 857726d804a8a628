import json
import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt import token_escape
from inferd.dialects.prompt.special_tokens import SpecialTokens
from inferd.dialects.prompt.token_escape import TokenEscape, TokenEscapeError
from tests.cases import each_case
from tests.unit.dialects.conversations import CONVERSATIONS, TOOLS

TOKENS = ["<|turn|>", "<turn>", "</s>", "<s>", "[INST]", "<<s>>", '<|"|>']
SPELLINGS = SpecialTokens(TOKENS)
PARTS = ["<", ">", "|", "s", "/s", "[", "]", "INST", "turn", "<|tu", "rn|>", '"', "é "]
TEXTS = st.lists(st.sampled_from([*TOKENS, *PARTS]), max_size=5).map("".join)
PRIVATE = "".join(map(chr, range(0xE000, 0xF900)))


def disguised(*texts, spellings=SPELLINGS):
    return TokenEscape(spellings, [Turn("user", text) for text in texts], ())


def calling(name, arguments):
    return Turn("assistant", "", (PastCall(id="", name=name, arguments=arguments),))


def tool(name="f", description="", schema="{}"):
    return ToolSpec(name=name, description=description, input_schema=schema)


def special(pieces):
    """Find the special tokens in pieces: begin and end in all of the text."""
    begins = accumulate(map(len, pieces), initial=0)
    return {
        (begin + found.start(), begin + found.end(1))
        for begin, piece in zip(begins, pieces, strict=False)
        for token in TOKENS
        for found in re.finditer(f"(?=({re.escape(token)}))", piece)
    }


# --- what becomes of tokens -----------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "x", "<turn>", "<|turn|>"]))))
def test_a_prompt_is_cut_in_tokens_with_characters_of_clients_and_nowhere_else(said):
    """Texts of clients, each with what a template puts behind it, if anything."""
    disguise = disguised(*(text for text, _ in said))
    written = text = makers = ""
    for turn, (clients, templates) in zip(disguise.turns, said, strict=True):
        written += turn.text + templates
        text += clients + templates
        makers += "c" * len(clients) + "t" * len(templates)
    pieces = disguise.unescape(written)
    wrong = (begin for begin, end in special([text]) if "c" in makers[begin:end])
    cuts = sorted({begin + 1 for begin in wrong})
    assert pieces == tuple(
        text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])
    )
    assert all("c" not in makers[begin:end] for begin, end in special(pieces))


@each_case("text", ["a <", "> a", "</s", "s>a", "a <|turn", "]"])
def test_what_could_have_been_part_of_a_token_and_is_not_leaves_no_trace(text):
    disguise = disguised(text)
    assert disguise.is_needed
    assert disguise.unescape(f"<turn>{disguise.turns[0].text}<turn>") == (
        f"<turn>{text}<turn>",
    )


def test_tokens_are_cut_behind_their_first_character():
    disguise = disguised("a<turn>b<<s>>")
    assert disguise.unescape(f"<turn>{disguise.turns[0].text}<turn>") == (
        *("<turn>a<", "turn>b<", "<", "s>><turn>"),
    )


@each_case(
    "texts",
    [
        *(["<tu", "rn>"], ["<", "turn", ">"], ["<|turn", "|>"], ["[", "INST]"]),
        *(["x<", "s>x"], ["<<", "s>>"]),
    ],
)
def test_texts_that_make_a_token_together_do_not(texts):
    disguise = disguised(*texts)
    pieces = disguise.unescape("".join(turn.text for turn in disguise.turns))
    assert "".join(pieces) == "".join(texts)
    assert special(pieces) == set()


@each_case("name", ["turn", "|turn|", "s", "/s", '|"|', "turn>", "<turn"])
def test_names_that_signs_make_a_token_of_do_not(name):
    named = TokenEscape(SPELLINGS, [calling(name, json.dumps({name: 1}))], [tool(name)])
    [call] = named.turns[0].calls
    [key] = json.loads(call.arguments)
    assert call.name == key == named.tools[0].name
    pieces = named.unescape(f"<{key}>")
    assert "".join(pieces) == f"<{name}>"
    assert special(pieces) == set()


def test_names_stay_in_their_order():
    schema = json.dumps(dict.fromkeys(["sa", "turn", "user", "turf"], 1))
    [named] = TokenEscape(SPELLINGS, [], [tool(schema=schema)]).tools
    begins = [key[:3] for key in sorted(json.loads(named.input_schema))]
    assert begins == ["sa", "tur", "tur", "use"]
    assert "turn" not in named.input_schema


def test_a_text_that_is_no_name_stays_as_it_is():
    disguise = TokenEscape(
        SPELLINGS, [Turn("user", "turn"), calling("f", '["turn"]')], ()
    )
    assert not disguise.is_needed


# --- what a conversation is made of ---------------------------------------------------


def test_every_text_of_a_conversation_is_disguised():
    turns = [
        *(Turn(role, "<turn>") for role in ("system", "user", "assistant")),
        Turn("tool", "<turn>", call_id="<turn>", name="<turn>"),
        Turn("assistant", "", (PastCall(id="<s>", name="<s>", arguments='["<s>"]'),)),
        calling("f", '{"a": {"<turn>": ["b", "<turn>"]}}'),
    ]
    tools = [tool("<turn>", "<turn>", '{"<turn>": "<turn>"}')]
    disguise = TokenEscape(SPELLINGS, turns, tools)
    written = repr([disguise.turns, disguise.tools])
    assert special([written]) == set()
    assert "".join(disguise.unescape(written)) == repr([turns, tuple(tools)])


@given(CONVERSATIONS, TOOLS)
@settings(max_examples=50)
def test_where_there_are_no_special_tokens_nothing_changes(turns, tools):
    disguise = TokenEscape(SpecialTokens([]), turns, tools)
    assert (disguise.turns, disguise.tools) == (turns, tuple(tools))
    assert disguise.unescape("<turn>") == ("<turn>",)


@settings(max_examples=25)
@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS) | st.integers()), st.booleans())
def test_json_stays_json_and_its_escapes_hide_nothing(value, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii).replace("<", "\\u003C")
    disguise = TokenEscape(SPELLINGS, [calling("f", text)], ())
    arguments = disguise.turns[0].calls[0].arguments
    written = json.dumps(json.loads(arguments), ensure_ascii=False)
    pieces = disguise.unescape(written)
    assert special(pieces) == set()
    assert json.loads("".join(pieces)) == value


@each_case(
    "text",
    [
        *("<turn>", '{"<turn>"', '"\\x <turn>"', "[" * 3000 + "<turn>"),
        '[1, "\\u003cturn>' + "]" * 9,
    ],
)
def test_what_is_no_json_is_a_text(text):
    disguise = TokenEscape(SPELLINGS, [calling("f", text)], ())
    arguments = disguise.turns[0].calls[0].arguments
    assert special([arguments]) == set()
    assert "".join(disguise.unescape(arguments)) == text


def test_json_too_deep_to_read_is_disguised_as_text_and_as_json():
    text = "[" * 3000 + '"\\u003cturn>", "<turn>"' + "]" * 3000
    disguise = TokenEscape(SPELLINGS, [calling("f", text)], ())
    arguments = disguise.turns[0].calls[0].arguments
    assert "turn" in arguments
    assert special([arguments]) == set()
    assert "\\u003c" not in arguments


# --- what is spared -------------------------------------------------------------------


def test_what_is_spared_stays_in_what_the_assistant_said_and_nowhere_else():
    said = "<turn>a</s><tu<turn>rn></s>"
    turns = [Turn("assistant", said), Turn("user", said)]
    spared = TokenEscape(SPELLINGS, turns, (), ["<turn>"])
    assistants, users = (turn.text for turn in spared.turns)
    assert assistants.split("<turn>")[0] == ""
    assert special([users]) == set()
    joined = assistants.replace("<turn>", "")  # as a template leaves it out
    assert "".join(spared.unescape(joined)) == "a</s><turn></s>"
    assert special(spared.unescape(joined)) == set()


# --- stand-ins ------------------------------------------------------------------------


def test_a_stand_in_takes_one_characters_place():
    [turn] = disguised("  <turn> ").turns
    assert len(turn.text) == len("  <turn> ")
    assert turn.text.strip() == turn.text[2:-1]
    assert turn.text[3:] == "turn> "


@pytest.mark.parametrize("write", [json.dumps, repr])
def test_a_stand_in_may_be_escaped_on_its_way(write):
    disguise = disguised("é <turn>")
    pieces = disguise.unescape(write(disguise.turns[0].text))
    assert "".join(pieces) == write("é <turn>")
    assert special(pieces) == set()


@each_case(
    "held", ["", *(json.dumps(PRIVATE[:99]).upper(), '"\\ue000"'), PRIVATE[:-99]]
)
def test_what_stands_in_is_in_no_text(held):
    disguise = TokenEscape(SPELLINGS, [Turn("user", "<turn>"), Turn("user", held)], ())
    one, other = disguise.turns
    assert other.text == held
    assert one.text[0] not in held
    assert json.dumps(one.text[0]).strip('"') not in held.lower()
    assert "".join(disguise.unescape(one.text + other.text)) == "<turn>" + held


def test_a_conversation_that_holds_all_that_could_stand_in_is_refused():
    assert not disguised(PRIVATE).is_needed
    with pytest.raises(TokenEscapeError, match="too many private-use characters"):
        disguised("<turn>", PRIVATE)


# --- bounds ---------------------------------------------------------------------------


def test_a_conversation_may_spell_only_so_many(monkeypatch):
    monkeypatch.setattr(token_escape, "SPELLED_SPECIAL_TOKENS", 4)
    assert disguised("<s>" * 2, "<s></s>").is_needed
    for texts in (["<s>" * 5], ["<s>" * 9], ["<s>" * 2, "<turn>", "</s>[INST]"]):
        with pytest.raises(TokenEscapeError, match="spells over 4 special tokens"):
            disguised(*texts)
