"""R17: the unit's hardening, by the tests in ``tests/systemd``."""

from typing import Final

from torture.outcome import Context
from torture.suite import run_tests

KEY: Final = "R17"
NAME: Final = "The unit, judged by systemd"


def run(context: Context) -> None:
    """Run the tests that need no container."""
    run_tests(context, "tests/systemd/test_unit.py")
