import re

import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.prompt.special_tokens import SpecialTokens
from tests.cases import each_case

TOKENS = ["<s>", "</s>", "<|turn|>", "<|turn", "[INST]", "[/INST]", "<<s>>"]
PARTS = ["<", ">", "|", "s", "/s", "<s>", "[", "]", "INST", "turn", "<|tu", "é ", "\n"]
TEXTS = st.lists(st.sampled_from([*TOKENS, *PARTS]), max_size=6).map("".join)
SPELLINGS = SpecialTokens(TOKENS)


def begun(text, spellings=SPELLINGS):
    return {
        found.start()
        for letter, pattern in spellings.starts_in(text)
        for found in pattern.finditer(text)
    }


@settings(max_examples=100)
@given(TEXTS)
def test_a_token_begins_where_it_stands_or_would_if_the_text_went_on(text):
    assert begun(text) == {
        place
        for place in range(len(text))
        for token in TOKENS
        if text.startswith(token, place) or token.startswith(text[place:])
    }


@settings(max_examples=100)
@given(TEXTS)
def test_a_text_that_begins_with_the_rest_of_a_token_has_a_place_in_all_such(text):
    rests = [token[n:] for token in TOKENS for n in range(1, len(token))]
    found = [len(rest) for rest in rests if text.startswith(rest)]
    assert SPELLINGS.tail_in(text) == (0 if found else None)


@settings(max_examples=100)
@given(TEXTS)
def test_the_longest_token_is_found_at_each_place(text):
    found = {}
    for token in sorted(TOKENS, key=len):
        for each in re.finditer(f"(?={re.escape(token)})", text):
            found[each.start()] = each.start() + len(token)
    assert sorted(SPELLINGS.tokens_in(text)) == sorted(found.items())


@settings(max_examples=100)
@given(TEXTS, st.integers(1, 3))
def test_a_text_is_parted_before_tokens_that_stay_whole(text, n_tokens):
    parts = [*SPELLINGS.split_every(text, n_tokens)]
    assert "".join(parts) == text
    found = [sorted(SPELLINGS.tokens_in(part)) for part in parts]
    assert all(each[0][0] == 0 for each in found[1:])
    outer = [pair for pair in found[0] if not any(a < pair[0] < b for a, b in found[0])]
    assert len(outer) <= n_tokens
    assert len(parts) == 1 or len(outer) == n_tokens


@pytest.mark.parametrize(
    ("n_tokens", "parts"),
    [
        (1, ["a<s>b", "[INST]", "<<s>>c"]),
        (2, ["a<s>b[INST]", "<<s>>c"]),
        (3, ["a<s>b[INST]<<s>>c"]),
    ],
)
def test_a_part_has_so_many_tokens(n_tokens, parts):
    assert [*SPELLINGS.split_every("a<s>b[INST]<<s>>c", n_tokens)] == parts


@each_case(
    ("text", "place"),
    [
        *(("s", 0), ("/s", 1), ("s>", 1), ("<s", 1), ("INST", 3)),
        *(("|turn|", 5), ("|turn", 4), ("turn", 3)),
        *(("", None), ("t", None), ("tur", None), ("|s|", None), ("s ", None)),
    ],
)
def test_a_name_is_what_signs_make_a_token_of(text, place):
    assert SPELLINGS.name_in(text) == place


def test_what_json_writes_otherwise_is_no_place():
    quote = SpecialTokens(['<|"|>', "<a\\b>"])
    assert [quote.tail_in(text) for text in ('"|>', '|"|>x', "\\b>", "|>")] == [
        1,
        0,
        1,
        0,
    ]
    assert [quote.name_in(text) for text in ('|"|', '|"', '"')] == [2, 0, None]
    assert quote.letters == [*"<>ab|"]


@pytest.mark.parametrize(
    "texts", [[], ["", "<", " ", "\n\n", "\t "], ['"<>', "\\<>", "\n<>", "\x00<>"]]
)
def test_some_texts_are_just_text(texts):
    spellings = SpecialTokens(texts)
    assert spellings.letters == []
    assert begun("< \n\n\t <>", spellings) == set()
    assert spellings.tail_in("\n <") is None
    assert spellings.name_in("") is None
    assert [*spellings.tokens_in('< \n\n"<>')] == []


def test_thousands_of_tokens_are_looked_for_at_once():
    tokens = [f"<unused{n}>" for n in range(1000)]
    spellings = SpecialTokens(tokens)
    text = "".join(tokens)
    assert len([*spellings.tokens_in(text)]) == len(begun(text, spellings)) == 1000
    assert begun("<unused1000> <unused-1>", spellings) == set()
