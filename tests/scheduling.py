"""Which tests pytest-xdist gives to one process, where it is told ``--dist loadscope``."""

from typing import Any, Final

import pytest
from xdist.scheduler import (  # type: ignore[import-untyped]
    LoadScopeScheduling,
)

TOGETHER: Final = {"attack", "documents"}
"""Folders whose tests share users, paths or a daemon: one runs after another."""

BY_MODULE: Final = {"systemd"}
"""Folders whose modules have a container each, which their tests share."""


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives tests of some folders or modules to one process, and any other to any."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Name what has to run in one process: a folder, a module, or a test."""
    folder = nodeid.split("/")[1]
    if folder in BY_MODULE:
        return nodeid.partition("::")[0]
    return folder if folder in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Any
) -> LoadScopeScheduling | None:
    """Give our own scheduler in place of theirs."""
    return ByFolder(config, log) if config.getvalue("dist") == "loadscope" else None
