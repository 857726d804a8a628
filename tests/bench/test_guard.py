"""What the guard compares with, and what it calls a loss."""

import subprocess

import pytest

from bench.guard import Figures, NoRevisionError, checkout, fallen, last_tag, told
from bench.lab import BEFORE, Lab, ModelFile


def figure(ratio: float, *, more_is_better: bool) -> dict[str, object]:
    ends = {"min": 1.0, "max": 2.0}
    return {
        "unit": "ms",
        "more_is_better": more_is_better,
        f"ratio_{BEFORE}": ratio,
        "spread": {"inferd": ends, BEFORE: ends},
    }


def test_a_ratio_below_the_least_is_named_whichever_way_is_better():
    measures: Figures = {
        "rate": {
            "a": figure(0.969, more_is_better=True),
            "b": figure(0.971, more_is_better=True),
        },
        "wait": {
            "a": figure(1.04, more_is_better=False),
            "b": figure(0.5, more_is_better=False),
        },
        "none": {"a": {"error": "it did not start"}},
    }
    assert fallen(measures) == ["rate of a", "wait of a"]
    lines = told(measures, "v1")
    assert lines[0] == "rate of a: 0.969 of v1's, now 1 … 2 ms; before 1 … 2 ms"
    assert lines[3].startswith("wait of b: 2.000 of v1's")
    assert lines[-1] == "fell below 0.97: wait of a"


def test_the_last_tag_is_taken_and_its_files_alone(tmp_path):
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True)

    git("init", "--quiet")
    with pytest.raises(NoRevisionError, match="no tag"):
        last_tag(tmp_path)
    (tmp_path / "file").write_text("before")
    git("add", "file")
    git("commit", "--quiet", "--message", "a")
    git("tag", "v1")
    (tmp_path / "file").write_text("after")
    git("commit", "--quiet", "--all", "--message", "b")
    assert last_tag(tmp_path) == "v1"
    with checkout(tmp_path, "v1") as earlier:
        assert [each.name for each in earlier.iterdir()] == ["file"]
        assert (earlier / "file").read_text() == "before"
    assert not earlier.exists()
    with pytest.raises(NoRevisionError, match="v2"), checkout(tmp_path, "v2"):
        pass


def test_both_daemons_are_sides_and_only_the_earlier_has_a_checkout(tmp_path):
    model = ModelFile("m", tmp_path / "m.gguf")
    sides = frozenset({"inferd", BEFORE, "peer"})
    lab = Lab(model, sides, n_threads=1, earlier=tmp_path)
    assert lab.daemons == {"inferd": None, BEFORE: tmp_path}
    assert Lab(model, frozenset({"peer"}), n_threads=1).daemons == {}
