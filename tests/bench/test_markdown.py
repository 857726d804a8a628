import re

import pytest

from bench.figures import Goal, summed
from bench.markdown import as_markdown, goal_of, number
from tests.bench.reports import some_figure, some_report


def tables(text):
    return re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)


def test_medians_ratios_and_goals_are_in_the_table():
    text = as_markdown(some_report())
    [row] = [line for line in text.splitlines() if line.startswith("| one stream")]
    assert "**92**<br>90 … 94" in row
    assert "**1.484**" in row
    assert "÷ llama.cpp alone ≥ 0.9: reached" in row
    assert "÷ llama-server ≥ 2: **missed**" in row
    assert "0 of 2" in row


def test_values_beside_have_a_row_below_without_goals():
    also = {"whole": {"title": "with prompts", **summed([{"inferd": 3, "peer": 4}])}}
    report = some_report(measures={"a": {"smol": some_figure(also=also)}})
    [first, second] = [
        line
        for line in as_markdown(report).splitlines()
        if line.startswith(("| one stream", "| with prompts"))
    ]
    assert "reached" in first
    assert "reached" not in second
    assert "| tokens/s | **3**" in second
    assert "**0.75**" in second
    assert first.count("|") == second.count("|")


def test_a_second_peer_has_a_column_and_a_ratio_where_it_was_measured():
    found = summed([{"inferd": 3.0, "peer": 4.0, "peer_small_batch": 6.0}])
    text = as_markdown(some_report(measures={"a": {"smol": some_figure(**found)}}))
    name = "llama-server, batches of 32"
    assert f"| {name} |" in text
    assert f"| ÷ {name} |" in text
    assert "**0.5**" in text
    assert name not in as_markdown(some_report())


def test_every_row_has_a_cell_for_each_head():
    for table in tables(as_markdown(some_report())):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_what_was_not_measured_is_told_with_the_reason():
    text = as_markdown(some_report())
    assert "- gemma3: no registry" in text
    assert "- stall_ms of smol: it broke" in text
    assert text.count("- rss_mb, llama.cpp alone: it serves nobody.") == 1


def test_plots_are_shown():
    assert "![a.svg](a.svg)" in as_markdown(some_report(), ["a.svg"])


def test_a_place_on_an_axis_that_failed_is_an_empty_row():
    assert "| 8 | n/a | n/a | n/a | n/a | n/a |" in as_markdown(some_report())


def test_a_quick_run_says_that_it_measures_nothing():
    settings = {**some_report()["settings"], "quick": True}
    assert "measures nothing" in as_markdown(some_report(settings=settings))
    assert "measures nothing" not in as_markdown(some_report())


@pytest.mark.parametrize(
    ("reached", "word"),
    [(True, "reached"), (False, "**missed**"), (None, "not measured")],
)
def test_a_goal_says_how_it_went(reached, word):
    told = goal_of("inferd", {"at_most": 45.0, "reached": reached})
    assert told == f"inferd ≤ 45: {word}"


def test_a_goal_reached_over_the_library_alone_is_not_told_as_its_own():
    goal = Goal("ratio_peer", at_least=1.08, or_raw=0.97)
    told = goal_of("ratio_peer", goal.as_json({"ratio_peer": 0.9, "ratio_raw": 0.98}))
    assert told == "÷ llama-server ≥ 1.08: reached over llama.cpp alone, ≥ 0.97"


@pytest.mark.parametrize(
    ("value", "text"), [(0.03456, "0.03456"), (999.94, "999.9"), (12345.6, "12,346")]
)
def test_a_number_has_the_digits_that_are_worth_reading(value, text):
    assert number(value) == text
