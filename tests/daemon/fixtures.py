"""Fixtures for tests that start daemons; a conftest imports what it needs."""

import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from tests.daemon.harness import Config, DaemonProcess, MakeDaemon, mock

RUNNING: Final[list[DaemonProcess]] = []
"""Every daemon that a test has now, for the report of a test that fails."""


@contextmanager
def daemons() -> Iterator[MakeDaemon]:
    """Give a maker of daemons; on leaving, all of them are finished."""
    made: list[DaemonProcess] = []

    def make(
        config: Config, *, environ: Mapping[str, str] | None = None
    ) -> DaemonProcess:
        daemon = DaemonProcess(config, environ=environ)
        made.append(daemon)
        RUNNING.append(daemon)
        return daemon

    try:
        yield make
    finally:
        _finish_all(made)


def _finish_all(made: list[DaemonProcess]) -> None:
    failures: list[str] = []
    for daemon in reversed(made):
        log = daemon.stderr()
        try:
            daemon.finish()
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            failures.append(f"{error}\n{log}")
        RUNNING.remove(daemon)
    assert not failures, "\n".join(failures)


@pytest.fixture
def make_daemon() -> Iterator[MakeDaemon]:
    """Make any number of daemons, which end with the test."""
    with daemons() as make:
        yield make


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[DaemonProcess]:
    """One daemon for all tests of a module that leave it as it was."""
    with daemons() as make:
        yield make({"backend": [mock(tokens=["Hel", "lo ", "wörld", "!"])]}).start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[
    None, pytest.TestReport, pytest.TestReport
]:
    """Show the logs of the daemons that run while a test fails."""
    report = yield
    if report.failed:
        report.sections += [
            (f"stderr of daemon {number}", daemon.stderr())
            for number, daemon in enumerate(RUNNING)
        ]
    return report
