"""Run a command in this process, as the shell would."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from inferd.cli import main
from tests.fakes.places import places

Capture = pytest.CaptureFixture[str]


class Outcome(NamedTuple):
    """What came of a command."""

    code: int
    stdout: str
    stderr: str


class Command:
    """Runs ``inferd`` where no configuration is found but the one that is given."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: Capture, home: Path) -> None:
        self._patch = patch
        self._capture = capture
        for name in ("INFERD_CONFIG", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("INFERD_LOG_DIR", str(home / "logs"))
        patch.setenv("XDG_CONFIG_HOME", str(home))
        patch.setenv("INFERD_CACHE_DIR", str(home / "cache"))
        if os.environ.get("INFERD_MODELS") == places().get("INFERD_MODELS"):
            # it is not that of a test
            patch.setenv("INFERD_MODELS", str(home / "models"))

    def __call__(self, *arguments: object) -> Outcome:
        """Run it."""
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["inferd", *map(str, arguments)])
            code = main()
        return Outcome(code, *self._capture.readouterr())
