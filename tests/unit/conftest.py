"""Fixtures of the commands' tests."""

import pytest

from tests.fakes.command import Command


@pytest.fixture
def inferd(monkeypatch, capfd, short_dir) -> Command:
    """Run a command in this process; its home is ``short_dir``."""
    return Command(monkeypatch, capfd, short_dir)
