from pathlib import Path

import pytest

from attack.catalogue import ATTACKS, chosen
from attack.measures import Check, Holdings, Sample, latency
from attack.report import Report, as_markdown, read_report, write_report
from attack.scene import Scene, SkippedError
from attack.trial import Verdict, try_attack

ROOT = Path(__file__).parents[2]


class Made:
    name = "made"
    kind = "loop"
    about = "does something"

    def __init__(self, do):
        self.try_in = do


def outcome(do):
    return try_attack(Made(do), Scene(ROOT))


def hold(scene):
    scene.require("it holds", True, "unseen")


def fail(scene):
    scene.require("it holds", False, "it does\n\x1b[2Jnot")


def measure(scene):
    for when in ("idle", "attacked", "after"):
        for which in ("new", "open"):
            samples = [Sample(0.002, 0.001, "done"), Sample(0.004, 0.001, "hung")]
            scene.latencies[f"{when} {which}"] = latency(samples, 0.01)
    holdings = Holdings(workers=[1, 2], rss_mb=40.0, n_fds=9)
    scene.holdings |= {"before": holdings, "after": holdings}
    scene.codes = {"invalid_request": 3}
    scene.slowest = [Sample(1.0, 1.0, "done", "slow one")]


def skip(scene):
    raise SkippedError("needs root")


def crash(scene):
    raise AssertionError("it is not ready")


@pytest.mark.parametrize(
    ("do", "verdict", "reason"),
    [
        (hold, Verdict.HELD, ""),
        (fail, Verdict.BROKEN, ""),
        (skip, Verdict.SKIPPED, "needs root"),
        (crash, Verdict.BROKEN, "it is not ready"),
    ],
)
def test_an_attack_has_an_outcome_whatever_happens(do, verdict, reason):
    found = outcome(do)
    assert found.verdict is verdict
    assert reason in found.reason


def test_what_is_held_has_no_detail():
    assert outcome(hold).checks == [Check("it holds", True)]


def test_a_report_is_read_as_it_was_written_and_an_attack_is_in_it_once(tmp_path):
    path = tmp_path / "report.json"
    for daemon, do in (("before", fail), ("after", measure), ("before", hold)):
        report = read_report(path)
        report.add(daemon, outcome(do))
        write_report(report, path)
    found = read_report(path)
    assert [len(each) for each in found.outcomes.values()] == [1, 1]
    assert found.outcomes["before"][0].verdict is Verdict.HELD


def test_a_table_has_both_daemons_and_what_did_not_hold():
    report = Report()
    report.add("before", outcome(measure))
    report.add("after", outcome(fail))
    text = as_markdown(report)
    assert "| made | before | 2.0 / 4.0 / 4.0 (n 2) |" in text
    assert "4 hung" in text
    assert "2 of 2" in text
    assert "it holds: it does  [2Jnot" in text
    assert "\x1b" not in text


def test_attacks_are_chosen_by_name_and_by_kind():
    assert chosen([]) == list(ATTACKS)
    assert {each.kind for each in chosen(["loop"])} == {"loop"}
    assert [each.name for each in chosen(["cancels", "impostor"])] == [
        "cancels",
        "impostor",
    ]
    with pytest.raises(KeyError):
        chosen(["no-such"])


def test_each_attack_has_a_name_of_its_own_and_each_kind_its_line_in_the_readme():
    names = [each.name for each in ATTACKS]
    kinds = {each.kind for each in ATTACKS}
    assert len({*names, *kinds}) == len(names) + len(kinds)
    text = (ROOT / "attack" / "README.md").read_text()
    modules = {path.stem for path in (ROOT / "attack" / "kinds").glob("[a-z]*.py")}
    assert modules == kinds
    assert all(f"| `{kind}` |" in text for kind in kinds)
