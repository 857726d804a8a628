from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from torture.outcome import Context, Size, SkippedError, Verdict, percentile
from torture.report import Report, as_markdown, read_report, write_report
from torture.trial import try_item

PUBLISHED = Path(__file__).parent


def item(run, key="R1"):
    return SimpleNamespace(KEY=key, NAME="Something", run=run)


def outcome(run=lambda _: None, key="R1"):
    return try_item(item(run, key), Context(Size.SHORT, 7))


def refuse(error):
    def run(context):
        context.counts["tries"] = 1
        raise error

    return run


def complain(context):
    context.require(False, "it broke")
    context.require(False, "it broke")


@pytest.mark.parametrize(
    ("run", "verdict", "reason"),
    [
        (lambda _: None, Verdict.HELD, ""),
        (complain, Verdict.BROKEN, "it broke"),
        (refuse(SkippedError("needs root")), Verdict.SKIPPED, "needs root"),
    ],
)
def test_an_item_has_an_outcome_whatever_happens(run, verdict, reason):
    found = outcome(run)
    assert (found.verdict, found.reason, found.seed) == (verdict, reason, 7)


def test_an_exception_breaks_an_item_and_its_counts_are_kept():
    error = ExceptionGroup("group", [AssertionError("no answer")])
    found = outcome(refuse(error))
    assert found.verdict is Verdict.BROKEN
    assert found.reason.startswith("AssertionError: no answer")
    assert found.counts == {"tries": 1}


def test_an_item_that_is_tried_again_takes_its_place(tmp_path):
    report = Report(machine={"cores": 2})
    for key in ("R10", "R2"):
        report.add(outcome(key=key))
    report.add(outcome(complain, key="R2"))
    write_report(report, tmp_path)
    again = read_report(tmp_path)
    assert [each.item for each in again.outcomes] == ["R2", "R10"]
    assert again.outcomes[0].verdict is Verdict.BROKEN
    assert (tmp_path / "report.md").read_text() == as_markdown(again)


def test_an_item_of_another_machine_names_that(tmp_path):
    report = Report(machine={"cores": 4})
    report.add(outcome(key="R2"))
    report.add(replace(outcome(key="R10"), machine={"cores": 2}))
    report.add(replace(outcome(key="R3"), machine={"cores": 4}))
    lines = [line for line in as_markdown(report).splitlines() if "Machine" in line]
    assert lines == ["Machine: cores 4.", "- Machine: cores 2."]


def test_without_a_file_nothing_is_known(tmp_path):
    assert read_report(tmp_path).outcomes == []


def test_the_table_that_is_published_says_what_the_figures_do():
    assert (PUBLISHED / "report.md").read_text() == as_markdown(read_report(PUBLISHED))


def test_measurements_are_told_in_milliseconds():
    context = Context(Size.FULL, 1)
    context.measure("wait", [0.001 * n for n in range(1, 101)])
    context.measure("never", [])
    assert context.figures == {
        "wait_p50_ms": 50,
        "wait_p99_ms": 99,
        "wait_max_ms": 100,
    }


@pytest.mark.parametrize(("share", "value"), [(1, 1), (50, 2), (99, 3), (100, 3)])
def test_a_percentile_is_one_of_the_values(share, value):
    assert percentile([3, 1, 2], share) == value


def test_what_is_drawn_follows_from_the_seed():
    first, second = (Context(Size.FULL, 3).rng.random() for _ in range(2))
    assert first == second
