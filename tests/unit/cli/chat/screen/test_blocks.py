from itertools import pairwise

from hypothesis import given, strategies as st

from inferd.cli.chat.screen.blocks import MAX_BLOCK_CHARS, BlockSplitter, MarkdownBlock
from tests.cases import each_case

LINES = st.sampled_from(
    [
        *(
            "",
            "words and more",
            "# Title",
            "- item",
            "  more of it",
            "1. first",
            "2) b",
        ),
        *("```python", "```", "~~~", "    code", "> quoted", "| a | b |", "|---|---|"),
        *("  ```", "***", "text `code` ```", "- ", "\t", "#no title", "===", "* star"),
    ]
)
TEXTS = st.lists(LINES, max_size=25).map("\n".join)


def split(*parts: str) -> list[MarkdownBlock]:
    splitter = BlockSplitter()
    found = [block for part in parts for block in splitter.feed(part)]
    return [*found, splitter.rest]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=6))
def test_blocks_are_the_text_however_it_is_cut(text, cuts):
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[a:b] for a, b in pairwise(places)]
    blocks = split(text)
    assert "".join(block.text for block in blocks) == text
    assert split(*parts) == blocks


@each_case(
    ("text", "texts"),
    [
        ("a\n\nb\n", ["a\n\n", "b\n"]),
        ("a\n\nb", ["a\n\n", "b"]),
        ("- a\n\n-", ["- a\n\n-"]),
        ("\t\na", ["\t\na"]),
        ("a\nb\n", ["a\nb\n"]),
        ("# a\nb", ["# a\n", "b"]),
        ("- a\n- b\n  c\n\nd\n", ["- a\n", "- b\n  c\n\n", "d\n"]),
        ("- a\n\n  still\n- b\n", ["- a\n\n  still\n", "- b\n"]),
        ("a\n```\nb\n\nc\n```\nd", ["a\n", "```\nb\n\nc\n```\n", "d"]),
        ("````\n```\n````\n", ["````\n```\n````\n", ""]),
        ("- a\n  ```\n  b\n  ```\n  c\n", ["- a\n  ```\n  b\n  ```\n  c\n"]),
    ],
)
def test_a_block_is_finished_where_nothing_can_change_it(text, texts):
    assert [block.text for block in split(text)] == texts


def test_items_of_one_list_have_no_empty_line_between_them():
    blocks = split("- a\n- b\n\n- c\n1. d\n")
    assert [block.is_joined for block in blocks] == [False, True, True, False]


def test_a_table_is_known_by_its_second_line():
    assert split("| a |\n|---|\n| 1 |")[0].is_table
    assert split("a | b\n:-- | --:\n")[0].is_table
    assert not split("a | b\nc")[0].is_table


def test_a_long_block_is_cut_and_its_code_goes_on_in_the_next():
    text = "```c\n" + f"{'x' * 99}\n" * 200
    blocks = split(text)
    assert all(len(block.text) <= MAX_BLOCK_CHARS + 100 for block in blocks)
    assert all(block.text.startswith("```c\n") for block in blocks)
    long = "y" * (3 * MAX_BLOCK_CHARS)
    assert "".join(block.text for block in split(long)) == long
    assert split(f"{long}\nz") == split(*f"{long}\nz")
