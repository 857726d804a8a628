"""Build and run the example clients of the protocol."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.configuration import clean_environ

EXAMPLES: Final = Path(__file__).parents[2] / "protocol" / "examples"
COMMAND_S: Final = 120.0
"""Seconds a client may take: those that build it are the longest."""

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Language:
    """How one client comes to run."""

    source: str
    tools: tuple[str, ...]
    """Programs without which it is not tested."""
    run: tuple[str, ...]
    build: tuple[str, ...] = ()
    surface: str = "v2"
    """The surface by which it generates."""


LANGUAGES: Final = {
    "shell": Language("client.sh", ("nc", "jq"), ("sh", "client.sh"), surface="v1"),
    "python": Language("client.py", (), (sys.executable, "client.py")),
    "node": Language("client.mjs", ("node",), ("node", "client.mjs")),
    "go": Language("main.go", ("go",), ("./client",), ("go", "build", "-o", "client")),
    "c": Language(
        "client.c",
        ("cc",),
        ("./client",),
        ("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "client"),
    ),
}


class Client:
    """A client in a folder of its own, built if it has to be.

    Args:
        name: of the language.
        folder: where it is copied to.
        timeout_s: seconds of silence that it bears, instead of its own.
    """

    def __init__(
        self, name: str, folder: Path, *, timeout_s: int | None = None
    ) -> None:
        self.language = LANGUAGES[name]
        self.folder = folder / name
        missing = [tool for tool in self.language.tools if not shutil.which(tool)]
        if missing:
            pytest.skip(f"no {missing[0]}: the client in {name} is not tested")
        shutil.copytree(EXAMPLES / name, self.folder)
        if timeout_s is not None:
            self._bear(timeout_s)
        if self.language.build:
            build = self._run([*self.language.build, self.language.source])
            assert build.returncode == 0, build.stderr

    @property
    def surface(self) -> str:
        """The surface by which it generates."""
        return self.language.surface

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Result:
        """Run it to its end."""
        return self._run([*self.language.run, *arguments], environ)

    def _run(
        self, command: list[str], environ: Mapping[str, str] | None = None
    ) -> Result:
        own = {"GOCACHE": str(self.folder / "cache"), "HOME": str(self.folder)}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=clean_environ() | own | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def _bear(self, timeout_s: int) -> None:
        file = self.folder / self.language.source
        text, n_places = re.subn(r"\b60\b", str(timeout_s), file.read_text())
        assert n_places == 1, f"{file.name} has its patience in one place"
        file.write_text(text)
