"""Drive a program in a real terminal, which is tmux's: its keys, its screen, its end."""

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.daemon.harness import eventually

ROOT = Path(__file__).parents[2]
INFERD = (sys.executable, "-m", "inferd")
ENDED = re.compile(r"ended with (\d+)$", re.MULTILINE)
WAIT_S = 40.0
"""Seconds that something may take to be seen: thirty times what it takes."""
MANY = 100_000
"""Lines of the terminal's history."""


class Terminal:
    """A terminal of some size, in which a shell runs one program.

    Args:
        folder: for the server's socket.
        columns: of the terminal.
        rows: of it.
        environ: of the program.
    """

    def __init__(
        self, folder: Path, columns: int, rows: int, environ: Mapping[str, str]
    ) -> None:
        self._socket = folder / f"tmux-{uuid.uuid4().hex[:8]}"
        self._environ = {**environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        self._size = (columns, rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str, text: str | None = None) -> str:
        result = subprocess.run(
            ["tmux", "-f", "/dev/null", "-S", str(self._socket), *words],
            input=text,
            capture_output=True,
            check=False,
            text=True,
            env=self._environ,
        )
        return result.stdout

    def run(self, command: Sequence[str]) -> None:
        """Start a program; after its end the screen says how it ended."""
        columns, rows = map(str, self._size)
        line = f"trap : INT; {shlex.join(command)}; echo ended with $?; exec sleep infinity"
        size = ("-x", columns, "-y", rows)
        self._tmux("new-session", "-d", "-s", "a", *size, "sh", "-c", line)
        self._tmux("set-option", "-t", "a", "history-limit", str(MANY))

    def keys(self, *names: str) -> None:
        """Press keys: texts, and names such as ``Enter`` and ``C-c``."""
        self._tmux("send-keys", "-t", "a", *names)

    def say(self, text: str) -> None:
        """Type a text and send it."""
        self._tmux("send-keys", "-t", "a", "-l", text)
        self.keys("Enter")

    def paste(self, text: str) -> None:
        """Paste a text as terminals do, with marks around it where the program asks."""
        self._tmux("load-buffer", "-", text=text)
        self._tmux("paste-buffer", "-p", "-t", "a")

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._tmux("resize-window", "-t", "a", "-x", str(columns), "-y", str(rows))

    def screen(self, *, has_styles: bool = False) -> str:
        """Return what is seen."""
        return self._tmux("capture-pane", "-p", "-t", "a", *["-e"] * has_styles)

    def all(self) -> str:
        """Return what is seen, and what has been scrolled away."""
        return self._tmux("capture-pane", "-p", "-S", "-", "-t", "a")

    def title(self) -> str:
        """Return the title that programs may set."""
        return self._tmux("display-message", "-p", "-t", "a", "#{pane_title}").strip()

    def pid(self) -> int:
        """Return the id of the program."""
        shell = self._tmux("display-message", "-p", "-t", "a", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])

    def wait_until(self, is_so: Callable[[str], object]) -> str:
        """Wait until the screen is so; return it."""
        seen = [""]

        def look() -> bool:
            seen[0] = self.screen()
            return bool(is_so(seen[0]))

        assert eventually(look, within_s=WAIT_S), seen[0]
        return seen[0]

    def wait(self, text: str) -> str:
        """Wait until a text is seen; return the screen."""
        return self.wait_until(lambda screen: text in screen)

    def wait_line(self, pattern: str) -> list[str]:
        """Wait until a line matches from its beginning on; return the lines of the screen."""
        line = re.compile(f"^{pattern}", re.MULTILINE)
        return self.wait_until(line.search).splitlines()

    def wait_gone(self, text: str) -> None:
        """Wait until a text is not seen any more."""
        self.wait_until(lambda screen: text not in screen)

    def code(self) -> int:
        """Wait until the program has ended; return its exit code."""
        assert eventually(
            lambda: ENDED.search(self.screen()) is not None, within_s=WAIT_S
        ), self.all()
        found = ENDED.search(self.screen())
        assert found is not None
        return int(found[1])


def kill(terminal: Terminal, number: int = 9) -> None:
    """Send the program a signal, by default that which ends it as a crash does."""
    os.kill(terminal.pid(), number)
