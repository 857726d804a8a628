"""The unit, judged by systemd's own tools."""

import re
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "inferd.service"


def test_systemd_has_nothing_to_say_about_the_unit(tmp_path):
    copy = tmp_path / "inferd.service"
    copy.write_text(
        re.sub("/opt/inferd/bin/inferd [a-z]+", "/bin/true", UNIT.read_text())
    )
    result = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(("threshold", "passes"), [("5", True), ("3", False)])
def test_the_unit_is_exposed_by_no_more_than_half_a_point(threshold, passes):
    result = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={threshold}",
            UNIT,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode == 0) is passes, result.stdout[-400:]
