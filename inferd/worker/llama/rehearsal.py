"""Compile grammars in a process of its own first, which can be ended.

The compiler has bounds, but not on all that it does: a schema of a few hundred bytes can
keep it busy for minutes, take gigabytes, or crash it. It runs in native code, and a
thread of ours that is in it cannot be stopped.

What is tried is exactly what is compiled later: the same text, for the same tokens, under
the same limits. Whatever differed could be made to pass here and to take hours there.
"""

import json
import signal
import sys
from contextlib import suppress
from typing import Final

from llguidance import LLTokenizer

from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_COMPILE_S
from inferd.worker.llama import helper
from inferd.worker.llama.compiler import Tokens, tokens_of
from inferd.worker.llama.helper import Helper

_TOO_LARGE: Final = "compiling it takes too much memory"
_WORDS: Final = {
    -signal.SIGPROF: f"compiling it takes over {GRAMMAR_COMPILE_S:g} s",
    -signal.SIGABRT: _TOO_LARGE,  # what native code does where it gets none
    -signal.SIGKILL: _TOO_LARGE,  # of the whole machine's
    1: _TOO_LARGE,  # Python got none
}
_CRASHED: Final = "the compiler crashed on it"


class Rehearsal:
    """Tells whether a grammar compiles, and does so soon. One thread calls it.

    Args:
        tokenizer: whose vocabulary grammars are compiled for.
        process: that was started before, where none can be later.

    Ownership:
        The process is started when it is needed, and again when it was ended; building
        its vocabulary takes seconds. It ends when its input does, so with ours at the
        latest, and what it is at within its limit of time. One that ends in a box takes
        its worker along, with the next grammar: a new worker has a new one.
    """

    def __init__(self, tokenizer: LLTokenizer, process: Helper | None = None) -> None:
        self._tokenizer = tokenizer
        self._process = process
        self._is_told = False

    def error_of(self, source: str) -> str | None:
        """Compile a grammar; give the compiler's words where it does not compile.

        Raises:
            RefusedError: it takes too long, or too much memory, or the compiler crashes.
        """
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it died of something else than its work
        if self._process is None:
            self._process = _started()
        if not self._is_told:
            self._ask(tokens_of(self._tokenizer))
            self._is_told = True
        answer = self._ask(source)
        if isinstance(answer, int):
            raise RefusedError(_WORDS.get(answer, _CRASHED))
        return answer

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            helper.end(self._process)
        self._process = None
        self._is_told = False

    def __del__(self) -> None:
        self.close()

    def _ask(self, question: str | Tokens) -> str | int | None:
        process = self._process
        assert process is not None  # noqa: S101  # callers see to it
        assert process.stdin is not None  # noqa: S101  # both are pipes
        assert process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it has just died
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        if line := process.stdout.readline():
            answer: str | int | None = json.loads(line)
            return answer
        code = process.wait()
        self.close()
        raise RefusedError(_WORDS.get(code, _CRASHED))


def _started() -> Helper:
    try:
        return helper.start()
    except PermissionError:  # in a box; not for one request alone to hear
        sys.exit("the process that tries grammars is gone")
