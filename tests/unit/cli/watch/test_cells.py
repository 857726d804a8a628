from hypothesis import given, settings, strategies as st

from inferd.cli.watch.cells import Column, fit, flow, n_cells, table
from tests.cases import each_case

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["日本語", "e\u0301", "\x1b[2J", "a\u200db"]
)
COLUMNS = (Column("NAME", 6, 0), Column("N", 4, 1), Column("SHARE", 7, 2))


@settings(max_examples=50)
@given(TEXTS, st.integers(0, 20), st.booleans())
def test_a_text_takes_exactly_its_cells_and_controls_nothing(text, width, is_number):
    fitted = fit(text, width, is_number=is_number)
    assert n_cells(fitted) == width
    assert "\x1b" not in fitted


@each_case(
    ("text", "width", "fitted"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日… "),
        ("e\u0301a", 2, "e\u0301a"),
        ("a\nb", 4, "a\\nb"),
    ],
)
def test_a_text_is_cut_or_filled(text, width, fitted):
    assert fit(text, width) == fitted


@settings(max_examples=30)
@given(st.lists(TEXTS, max_size=6), st.integers(1, 40))
def test_parts_flow_into_lines_of_the_width(parts, width):
    assert all(n_cells(line) <= width for line in flow(parts, width))


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=3), st.integers(1, 40))
def test_every_row_of_a_table_has_its_width(rows, width):
    lines = table(COLUMNS, rows, width)
    assert {n_cells(line) for line in lines} == {width}
    assert len(lines) == len(rows) + 1


def test_columns_of_the_highest_ranks_are_left_out_first():
    rows = [("ann", "12", "50 %")]
    assert table(COLUMNS, rows, 20) == ["NAME       N   SHARE", "ann       12    50 %"]
    assert table(COLUMNS, rows, 14) == ["NAME         N", "ann         12"]
    assert table(COLUMNS, rows, 6) == ["NAME  ", "ann   "]
