"""Completions in the shells that people type in."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cases import each_case
from tools.packages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

SHARE = ROOT / "share"
PATIENCE_S = 120.0
READY = b"READY> "
BASH = f"""
. {SHARE}/bash-completion/completions/inferd
"""
ZSH = f"""
fpath=({SHARE}/zsh/site-functions $fpath)
autoload -U compinit
compinit -u -d ./dump
"""
FISH = f"source {SHARE}/fish/vendor_completions.d/inferd.fish; complete -C"

CASES = [
    ("inferd mod", "model"),
    ("inferd model pu", "pull"),
    ("inferd bridge token rem", "remove"),
    ("inferd generate --max-t", "--max-tokens"),
    ("inferd serve --log-level warn", "warning"),
    ("inferd serve --config ./conf", "./configuration"),
]
"""What is typed before the tabulator, and the last word afterwards."""


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._seen = b""

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: bytes) -> None:
        """Wait until something is shown, and forget what was shown so far."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self._seen)):
            assert time.monotonic() < deadline, self._seen
            if select.select([self._terminal], [], [], 1.0)[0]:
                self._seen += os.read(self._terminal, 65536)
        self._seen = self._seen[found.end() :]


@contextmanager
def shell(words: list[str], start: str, home: Path) -> Iterator[Shell]:
    """Start a shell that has read some lines."""
    (home / "configuration").touch()
    (home / "start").write_text(start)
    environ = {"PATH": "/usr/bin:/bin", "TERM": "dumb", "HOME": str(home)}
    outer, inner = pty.openpty()
    with subprocess.Popen(
        words,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=home,
        env={**environ, "PS1": READY.decode(), "COLUMNS": "200"},
        start_new_session=True,
    ) as process:
        os.close(inner)
        try:
            started = Shell(outer)
            started.wait_for(READY)
            started.type(". ./start; echo started''here\n")
            started.wait_for(b"startedhere")
            started.wait_for(READY)
            yield started
        finally:
            process.kill()
            os.close(outer)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["bash", "--norc", "--noprofile", "-i"], BASH),
        (["zsh", "-f", "-i"], ZSH),
    ],
    ids=["bash", "zsh"],
)
def test_a_tabulator_completes_what_was_begun(words, start, tmp_path):
    with shell(words, start, tmp_path) as typed:
        for begun, completed in CASES:
            typed.type(begun)
            typed.wait_for(re.escape(begun.rpartition(" ")[2].encode()))
            typed.type("\t")
            last = begun.rpartition(" ")[2]
            typed.wait_for(re.escape(completed.removeprefix(last).encode()))
            typed.type("\x15")  # the line is emptied


@each_case(("begun", "completed"), CASES)
def test_fish_completes_the_same(begun, completed, tmp_path):
    (tmp_path / "configuration").touch()
    done = subprocess.run(
        ["fish", "--no-config", "--command", f"{FISH} '{begun}'"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert completed in [line.split("\t")[0] for line in done.stdout.splitlines()]
