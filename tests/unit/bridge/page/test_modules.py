import subprocess
from pathlib import Path

import pytest

MODULES = Path(__file__).parent / "modules" / "all.mjs"


@pytest.mark.slow
def test_the_modules_of_the_page_pass_their_tests():
    """They run in Node.js, by its own runner, in one process."""
    done = subprocess.run(
        ["node", MODULES], capture_output=True, text=True, check=False
    )
    failed = [line for line in done.stdout.splitlines() if "not ok" in line]
    assert done.returncode == 0, (failed, done.stdout[-4000:], done.stderr[-2000:])
    assert "# tests " not in done.stdout or "# tests 0" not in done.stdout
