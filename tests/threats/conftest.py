"""Real daemons for the threats that only show from outside."""

from tests.daemon.fixtures import make_daemon, pytest_runtest_makereport, shared_daemon

__all__ = ["make_daemon", "pytest_runtest_makereport", "shared_daemon"]
