"""The benchmark runs from end to end, and its report adds up."""

import json
import statistics
import subprocess
import sys

import pytest

from bench.figures import significant

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.short_version]

KEYS = ("single_stream", "stall_ms", "ready_s", "prompt_tokens")


@pytest.fixture
def report(tiny_f32, tmp_path):
    command = [
        *(sys.executable, "-m", "bench", "--quick", "--sides", "inferd"),
        *("--model", f"tiny={tiny_f32}", "--output", str(tmp_path), "--rounds", "2"),
        *(word for key in KEYS for word in ("--only", key)),
    ]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads((tmp_path / "report.json").read_text())


def test_a_quick_run_leaves_a_whole_report(report, tmp_path):
    assert set(report["measures"]) == {*KEYS} - {"prompt_tokens"}
    assert report["growth"]["prompt_tokens"]["tiny"].keys() == {"64", "128"}
    for models in report["measures"].values():
        figure = models["tiny"]
        values = [each["inferd"] for each in figure["rounds"]]
        assert figure["inferd"] == significant(statistics.median(values)) > 0
        assert figure["n_rounds"] == len(values) > 0
        assert (figure["peer"], figure["ratio_peer"]) == (None, None)
        assert figure["reasons"].keys() == {"peer", "raw"}
    text = (tmp_path / "report.md").read_text()
    assert "## tiny" in text
    assert (tmp_path / "growth-prompt_tokens-tiny.svg").is_file()
