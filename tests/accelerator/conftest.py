from tests.daemon.fixtures import make_daemon, pytest_runtest_makereport

__all__ = ["make_daemon", "pytest_runtest_makereport"]
