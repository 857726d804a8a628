import pytest
from hypothesis import given, settings, strategies as st

from inferd.cli.chat.commands.catalogue import _FUNCTIONS
from inferd.cli.chat.commands.files import as_text
from inferd.cli.chat.commands.model import losses
from inferd.cli.chat.commands.numbers import chosen
from inferd.cli.chat.commands.parsing import NAMES, CommandLine, as_typed, parse
from inferd.cli.console import CommandError
from inferd.client.core.offers import ServedFacts
from tests.cases import each_case


@each_case(
    ("text", "asked"),
    [
        ("hello /help", "hello /help"),
        ("//etc/passwd", "/etc/passwd"),
        ("/help", CommandLine("help", "")),
        ("/he", CommandLine("help", "")),
        ("/title  A  name ", CommandLine("title", "A  name")),
        ("/export a b.md", CommandLine("export", "a b.md")),
    ],
)
def test_what_begins_with_a_slash_is_a_command(text, asked):
    assert parse(text) == asked


@each_case(
    ("text", "told"),
    [
        ("/", "no such command"),
        ("/usr/bin/x", "no such command"),
        ("/exprot a", "did you mean /export"),
        ("/e", "did you mean /edit or /export"),
        ("/he\nlp", r"/he\nlp: did you mean"),
    ],
)
def test_an_unknown_command_is_refused_with_what_was_meant(text, told):
    with pytest.raises(CommandError, match=told):
        parse(text)


@settings(max_examples=40)
@given(st.text() | st.text().map("/".__add__))
def test_what_is_to_be_typed_for_a_prompt_is_that_prompt(text):
    assert parse(as_typed(text)) == text


@settings(max_examples=40)
@given(st.text())
def test_all_texts_are_a_prompt_a_command_or_refused(text):
    try:
        asked = parse(text)
    except CommandError:
        assert text.startswith("/")
    else:
        assert isinstance(asked, str) or asked.name in NAMES


def test_each_command_has_a_function():
    assert _FUNCTIONS.keys() == set(NAMES)


@each_case("number", ["", "0", "3", "-1", "x", "²", "9" * 40])
def test_a_number_that_is_not_in_the_list_is_refused(number):
    assert chosen(["a", "b"], "2", "") == "b"
    with pytest.raises(CommandError):
        chosen(["a", "b"], number, "look")


def served(name: str, *can: str, n_ctx: int = 1000) -> ServedFacts:
    return ServedFacts(
        name=name, aliases=(), state="ready", can=frozenset(can), n_ctx=n_ctx
    )


def test_what_another_model_loses_is_told():
    both = served("a", "vision", "audio", "thinking"), served("b", n_ctx=500)
    told = "; ".join(losses(*both, 700))
    for words in ("700", "500", "pictures", "sound", "reason", "reads the whole"):
        assert words in told
    assert losses(both[0], both[0], 700) == []
    assert losses(None, both[1], None) == []
    assert losses(both[1], served("c", n_ctx=900), None) == []


def test_a_text_is_fenced_by_more_than_it_has():
    assert as_text("a.md", "```\nb\n```\n") == "a.md:\n````\n```\nb\n```\n````\n"
