"""The types that the page's modules state in their comments."""

import subprocess
from pathlib import Path

import pytest

from tools.programs import program_python

pytestmark = pytest.mark.short_version


def test_the_modules_keep_the_types_that_they_state():
    bin_directory = program_python("page").parent
    compiler = bin_directory.parent / "node_modules" / "typescript" / "lib" / "tsc.js"
    project = Path(__file__).parent / "tsconfig.json"
    done = subprocess.run(
        [bin_directory / "node", compiler, "--project", project],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
