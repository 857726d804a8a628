from pathlib import Path

import msgspec
from hypothesis import given, settings, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from inferd.cli.watch.cells import n_cells
from inferd.cli.watch.screen import amount, report, screen
from inferd.cli.watch.view import HELP, ORDERS, View, pressed
from inferd.terminal import Style
from inferd.wire.observed import ModelLoad, Overview
from tests.cases import each_case
from tests.fakes.overview import ANN, CHAT, GIB, OVERVIEW

DOCUMENT = Path(__file__).parents[4] / "docs" / "watching.md"
NAMES = st.text(min_size=1, max_size=40) | st.sampled_from(
    ["\x1b[2J", "日本語", "\u202e"]
)


def text_of(
    overview: Overview | None, view: View, width: int, height: int
) -> list[str]:
    return [line.text.rstrip() for line in screen(overview, view, width, height)]


def test_a_screen_is_the_one_of_the_document():
    lines = text_of(OVERVIEW, View(), 80, 24)
    assert len(lines) == 13
    assert "\n".join(["```text", *lines, "```"]) in DOCUMENT.read_text()


@settings(max_examples=60)
@given(
    st.integers(0, 130),
    st.integers(0, 40),
    st.lists(NAMES, max_size=30),
    st.sampled_from(["both", "users", "models"]),
    st.text(max_size=60),
)
def test_every_screen_fits_its_terminal_whatever_names_there_are(
    width, height, names, part, note
):
    overview = replace(
        OVERVIEW,
        users=[replace(ANN, principal=name) for name in names],
        models=[replace(CHAT, name=name) for name in names],
    )
    lines = screen(overview, View(part=part), width, height, note)
    assert len(lines) <= height
    assert {n_cells(line.text) for line in lines} <= {width}
    assert not any("\x1b" in line.text or "\u202e" in line.text for line in lines)


def test_a_table_that_does_not_fit_says_how_many_rows_it_leaves_out():
    users = [replace(ANN, uid=uid) for uid in range(30)]
    text = text_of(replace(OVERVIEW, users=users), View(part="users"), 80, 20)
    assert text[-2:] == ["19 more", HELP]
    assert len(text) == 20
    small = text_of(replace(OVERVIEW, users=users), View(), 40, 20)
    assert small[-1] == HELP
    assert any(line.startswith("chat") for line in small)
    assert any(line.startswith("0 for ann") for line in small)


def test_keys_change_what_is_shown_and_how_users_are_sorted():
    view = View()
    for key in "sss":
        view = pressed(view, key)
    assert view.order == "name"
    assert pressed(view, "s").order == ORDERS[0]
    rows = text_of(OVERVIEW, pressed(view, "u"), 80, 24)
    assert [line.split()[0] for line in rows if "%" in line][1:] == ["0", "1000"]
    assert not any(line.startswith("MODEL") for line in rows)
    assert pressed(pressed(view, "u"), "u").part == "both"
    models = text_of(OVERVIEW, pressed(view, "m"), 80, 24)
    assert not any(line.startswith("USER") for line in models)
    assert "PAUSED ready" in text_of(OVERVIEW, pressed(view, "p"), 80, 24)[0]
    assert pressed(view, "q").has_ended
    assert pressed(view, "x") == view


def test_a_daemon_that_is_gone_is_told_above_the_last_numbers():
    lines = screen(OVERVIEW, View(), 40, 20, "5 s old: no daemon answers at /run/x")
    assert lines[1].style is Style.BAD
    assert lines[1].text.startswith("5 s old: no daemon answers")
    assert "no daemon" in text_of(None, View(), 80, 24)[0]


def test_a_report_has_every_row_and_no_keys():
    users = [replace(ANN, uid=uid) for uid in range(100)]
    lines = report(replace(OVERVIEW, users=users), View(), 80)
    assert sum(" for ann" in line.text for line in lines) == 100
    assert all(line.text.strip() != HELP for line in lines)


def test_what_is_not_known_is_a_dash():
    bare = ModelLoad(
        name="far", state="ready", running=0, waiting=0, tokens_per_second=0
    )
    overview = replace(OVERVIEW, models=[replace(bare, remote=True)], users=[])
    [row] = [
        each for each in text_of(overview, View(), 80, 24) if each.startswith("far")
    ]
    assert row.split() == ["far", "remote", "0", "0", "0", *"----"]
    unknown = replace(overview, first_token_ms=UNSET, waiting_ms=UNSET, total_ms=UNSET)
    assert not any("p50" in line for line in text_of(unknown, View(), 80, 24))


@each_case(
    ("n_bytes", "text"),
    [
        (UNSET, "-"),
        (0, "0B"),
        (1536, "1.5K"),
        (999 * 1024, "999K"),
        (1000 * 1024, "0.977M"),
        (20 * GIB, "20G"),
        (3 * 1024**4, "3T"),
    ],
)
def test_bytes_are_a_few_characters(n_bytes, text):
    assert amount(n_bytes) == text


def test_an_overview_is_json():
    assert msgspec.json.decode(msgspec.json.encode(OVERVIEW), type=Overview) == OVERVIEW
