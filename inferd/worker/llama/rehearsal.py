"""Compile grammars in a process of its own first, which can be ended.

The compiler has bounds, but not on all that it does: a schema of a few hundred bytes can
keep it busy for minutes, or take gigabytes. It runs in native code, and a thread of ours
that is in it cannot be stopped.
"""

import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_COMPILE_S

_TOO_LONG: Final = f"compiling it takes over {GRAMMAR_COMPILE_S:g} s"
_TOKENS: Final = re.compile(r"<\[[\d,\- ^]+\]>|<\|[^|<>\s\"]+\|>")
"""Special tokens, by number or by name. The trial knows no vocabulary but bytes."""
_STAND_IN: Final = "<[0]>"
_TOO_LARGE: Final = "compiling it takes too much memory"


class Rehearsal:
    """Tells whether a grammar compiles, and does so soon. One thread calls it.

    Ownership:
        The process is started when it is needed, and again when it was ended. It ends
        when its input does, so with ours at the latest.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def error_of(self, source: str) -> str | None:
        """Compile a grammar; give the compiler's words where it does not compile.

        Raises:
            RefusedError: it takes too long, or too much memory.
        """
        process = self._running()
        assert process.stdin is not None  # noqa: S101  # both are pipes
        assert process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it has just died
            process.stdin.write(json.dumps(_TOKENS.sub(_STAND_IN, source)) + "\n")
            process.stdin.flush()
        if answer := process.stdout.readline():
            error: str | None = json.loads(answer)
            return error
        code = process.wait()
        self.close()
        raise RefusedError(_TOO_LONG if code == -signal.SIGPROF else _TOO_LARGE)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            with suppress(BrokenPipeError), self._process:  # closes the pipes, reaps it
                self._process.kill()
        self._process = None

    def __del__(self) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it died of something else than its work
        if self._process is None:
            self._process = subprocess.Popen(  # our own module
                [sys.executable, "-P", "-m", "inferd.worker.llama.compiler"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it could quote grammars
                text=True,
            )
        return self._process
