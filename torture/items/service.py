"""R16: the service under a real systemd, by the tests in ``tests/systemd``."""

from typing import Final

from torture.outcome import Context
from torture.suite import run_tests

KEY: Final = "R16"
NAME: Final = "The service under a real systemd"


def run(context: Context) -> None:
    """Run the tests that boot a container."""
    run_tests(context, "tests/systemd", "--ignore=tests/systemd/test_unit.py")
