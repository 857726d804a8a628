"""Fixtures of the tests that run the example clients."""

from tests.daemon.fixtures import make_daemon, pytest_runtest_makereport

__all__ = ["make_daemon", "pytest_runtest_makereport"]
