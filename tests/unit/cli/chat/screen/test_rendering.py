import re

from hypothesis import given, settings, strategies as st
from rich.cells import cell_len

from inferd.cli.chat.screen.blocks import MarkdownBlock
from inferd.cli.chat.screen.rendering import MIN_WIDTH, LineStyle
from inferd.terminal import escape
from tests.cases import each_case

SGR = re.compile(r"\x1b\[[0-9;]*m")
PLAIN = LineStyle(40, has_colour=False, has_styles=False)
PIECES = st.sampled_from(
    [
        *("\x1b[31m", "\x1b]8;;http://x\x07", "\x9b", "\u202e", "&#x202e;", "&#27;"),
        *("[a](javascript:x)", "![p](file:///etc/passwd)", "<b>", "<!-- -->", "|---|"),
        *("\r", "\b", "\x00", "\ud800", "\u2028", "`", "**", "- ", "\n", "\n\n", "> "),
        *(
            "```\n",
            "| a ",
            "wörld ",
            "日本",
            "👩‍👩‍👧",
            "[b]: x",
            "# ",
            "1. ",
            "\t",
            "&amp;",
        ),
    ]
)


def drawn(text: str, style: LineStyle = PLAIN) -> str:
    return "\n".join(style.markdown(MarkdownBlock(text)))


@settings(max_examples=30)
@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from([MIN_WIDTH, 79]))
def test_whatever_a_model_writes_controls_nothing_and_fits(text, width):
    for line in LineStyle(width).markdown(MarkdownBlock(text)):
        shown = SGR.sub("", line)
        assert escape(shown, is_prose=True) == shown
        assert "\n" not in shown
        assert cell_len(shown) <= width


@each_case(
    ("text", "shown"),
    [
        ("**a** `b` ~~c~~", "a b c"),
        ("[a](https://b.example/c)", "a (https://b.example/c)"),
        ("[a](javascript:b)", "[a](javascript:b)"),
        ("![a](https://b/c)", "!a (https://b/c)"),
        ("<b>a</b>", "<b>a</b>"),
        ("<div>a</div>", "<div>a</div>"),
        ("[red]a[/red] :smile:", "[red]a[/red] :smile:"),
        ("\x1b[31ma", r"\x1b[31ma"),
        ("a&#x202e;b", r"a\u202eb"),
        ("# A title", "A title"),
        ("```py\na = 1\n```", "  a = 1"),
        ("- a\n- b", " • a\n • b"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", " a  b\n ────\n 1  2"),
    ],
)
def test_markdown_is_drawn(text, shown):
    assert drawn(text) == shown


def test_no_colour_is_used_where_none_is_wanted():
    codes = SGR.findall(drawn("**a** `b`", LineStyle(40, has_colour=False)))
    assert codes
    assert not re.search(r"\[(?:[0-9;]*;)?(?:3|4|9|10)[0-9]m", "".join(codes))
    assert SGR.findall(drawn("**a** `b`")) == []


def test_a_line_is_cut_and_a_text_is_wrapped():
    assert (
        PLAIN.line("word " * 20).rstrip("…")
        == "word word word word word word word word"
    )
    assert len(PLAIN.plain("word " * 20)) == 3
    assert PLAIN.line("a\nb\x1b") == r"a\nb\x1b"


def test_what_rich_cannot_draw_is_shown_as_it_is(monkeypatch):
    def fail(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr("inferd.cli.chat.screen.rendering._SafeMarkdown", fail)
    assert drawn("**a**") == "**a**"
