import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["lines", "headers", "socket", "truncation", "large"]
)
def test_a_program_that_is_asked_for_help_does_nothing_else(program):
    result = subprocess.run(
        [sys.executable, "-m", f"fuzz.{program}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: ")
    assert f"python -m fuzz.{program}" in result.stdout
