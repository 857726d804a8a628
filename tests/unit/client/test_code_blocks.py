from hypothesis import given, settings, strategies as st

from inferd.client.code_blocks import (
    FENCE_LINE_MAX_CHARS,
    Code,
    CodeBegins,
    CodeBlocks,
    CodeEnds,
    Part,
    Prose,
)
from tests.cases import each_case
from tests.unit.output.oracle import split

LINES = [
    "```",
    "\u2028",
    "```py\n",
    "````\n",
    "~~~",
    "\n",
    "a",
    " ",
    "    ",
    "`",
    "x`y",
    "\r\n",
]
TEXTS = st.lists(st.sampled_from(LINES), max_size=16).map("".join)


def joined(parts: list[Part]) -> list[Part]:
    """Join neighbours of text."""
    whole: list[Part] = []
    for part in parts:
        match whole[-1:], part:
            case [Prose(before)], Prose(text):
                whole[-1] = Prose(before + text)
            case [Code(before)], Code(text):
                whole[-1] = Code(before + text)
            case _:
                whole.append(part)
    return whole


def parts_of(*pieces: str) -> list[Part]:
    blocks = CodeBlocks()
    given_parts = [part for piece in pieces for part in blocks.feed(piece)]
    return given_parts + blocks.finish()


PY = CodeBegins("py")
END = CodeEnds()


@each_case(
    ("text", "parts"),
    [
        ("", []),
        ("a\nb", [Prose("a\nb")]),
        (
            "a\n```py\nx = 1\n```\nb",
            [Prose("a\n"), PY, Code("x = 1\n"), END, Prose("b")],
        ),
        ("```py\n```", [PY, END]),
        ("```py\nx", [PY, Code("x")]),
        ("```py\nx\n``", [PY, Code("x\n``")]),
        ("```py", [Prose("```py")]),
        ("``` py title=a\n", [PY]),
        ("~~~py\n```\n~~~\n", [PY, Code("```\n"), END]),
        ("````py\n```\n`````\n", [PY, Code("```\n"), END]),
        ("   ```py\n   ```\n", [PY, END]),
        ("    ```py\n", [Prose("    ```py\n")]),
        ("a ```py\n", [Prose("a ```py\n")]),
        ("```a`b\n", [Prose("```a`b\n")]),
        ("~~~\u2028b", [Prose("~~~\u2028b")]),
        ("~~~a`b\nx", [CodeBegins("a`b"), Code("x")]),
        ("```py\n``` x\n```\n", [PY, Code("``` x\n"), END]),
        ("```py\r\nx\r\n```\r\n", [PY, Code("x\r\n"), END]),
        ("```py\n```\n```py\n```\n", [PY, END, PY, END]),
    ],
)
def test_fences_are_those_of_commonmark(text, parts):
    assert joined(parts_of(text)) == parts
    assert joined(parts_of(*text)) == parts


@settings(max_examples=60)
@given(TEXTS.flatmap(split))
def test_any_split_gives_the_same_parts(pieces):
    assert joined(parts_of(*pieces)) == joined(parts_of("".join(pieces)))


@settings(max_examples=60)
@given(st.text(alphabet="ab\n ", max_size=30))
def test_text_without_fences_is_prose_as_it_stands(text):
    assert joined(parts_of(text)) == ([Prose(text)] if text else [])


def test_only_the_beginning_of_a_line_that_may_be_a_fence_is_held_back():
    blocks = CodeBlocks()
    assert blocks.feed("a") == [Prose("a")]
    assert blocks.feed("\n``") == [Prose("\n")]
    assert blocks.feed("b") == [Prose("``b")]
    assert blocks.feed("\n```py\nx") == [Prose("\n"), PY, Code("x")]
    assert blocks.feed("\n``") == [Code("\n")]
    assert blocks.feed("x") == [Code("``x")]


@each_case("end", ["", "\n", "\r\n", "\nb"])
@each_case(
    "line",
    [
        "```py " + "x" * FENCE_LINE_MAX_CHARS,
        "```" + "x" * (FENCE_LINE_MAX_CHARS - 3),
        "```" + "x" * (FENCE_LINE_MAX_CHARS - 2),
        "~~~\na\n~~~" + " " * (FENCE_LINE_MAX_CHARS - 3),
        "~~~\na\n~~~" + " " * (FENCE_LINE_MAX_CHARS - 2),
        "~~~\na\n" + "~" * FENCE_LINE_MAX_CHARS + "~",
    ],
)
def test_a_line_at_the_bound_is_the_same_in_any_split(line, end):
    text = line + end
    whole = joined(parts_of(text))
    assert joined(parts_of(*text)) == whole
    for n in (1, 500, FENCE_LINE_MAX_CHARS, FENCE_LINE_MAX_CHARS + 1, len(line)):
        assert joined(parts_of(text[:n], text[n:])) == whole


def test_a_line_over_the_bound_is_no_fence():
    fits = "```" + "x" * (FENCE_LINE_MAX_CHARS - 3)
    assert parts_of(fits + "\n") == [CodeBegins(fits[3:])]
    assert parts_of(fits + "x\n") == [Prose(fits + "x\n")]
    closing = "```" + " " * (FENCE_LINE_MAX_CHARS - 3)
    assert parts_of(f"```py\n{closing}\n") == [PY, END]
    assert parts_of(f"```py\n{closing} \n") == [PY, Code(f"{closing} \n")]


def test_no_line_is_held_back_for_ever():
    blocks = CodeBlocks()
    assert blocks.feed("```" + "x" * (FENCE_LINE_MAX_CHARS - 3)) == []
    line = "```" + "x" * (FENCE_LINE_MAX_CHARS - 2)
    assert blocks.feed("x") == [Prose(line)]
    assert blocks.feed("\ny") == [Prose("\n"), Prose("y")]
