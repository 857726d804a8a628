"""Fixtures of the tests that drive a real daemon with a scripted backend."""

from tests.daemon.fixtures import make_daemon, pytest_runtest_makereport, shared_daemon

__all__ = ["make_daemon", "pytest_runtest_makereport", "shared_daemon"]
