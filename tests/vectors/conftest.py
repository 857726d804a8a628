"""Fixtures of the tests that replay the vectors."""

from tests.daemon.fixtures import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
