"""Check that grammars compile, and locate the error in those that do not.

The compiler has limits, but not on everything: a schema of a few hundred bytes can keep it
busy for minutes, take gigabytes, or crash it. It is native code that only the kernel can
stop, so this runs in a process that serves one request.

The check compiles exactly what the worker compiles later: the same text, for the same
vocabulary, under the same limits. Any difference could be used to pass here and take hours
there.
"""

import hashlib
from collections.abc import Callable, Collection

from llguidance import LLTokenizer

from inferd.limits.worker import GRAMMAR_TOTAL_BYTES
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import ALL_FIELDS, Grammar
from inferd.worker.llama.grammar.compiler import compile_error
from inferd.worker.llama.grammar.errors import explain_error


class GrammarChecker:
    """Compile check for the grammars of one request.

    Args:
        tokenizer: the vocabulary to compile for.
        known: SHA-256 digests of grammars that are known to compile.
        report: called with the field before each compilation, which may crash the process.
    """

    def __init__(
        self,
        tokenizer: LLTokenizer,
        known: Collection[bytes] = (),
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tokenizer = tokenizer
        self._known = frozenset(known)
        self._report = report
        self.passed: dict[bytes, None] = {}
        """SHA-256 digests of the grammars that compile, in order."""

    def check(self, grammar: Grammar) -> None:
        """Check that a grammar compiles.

        Raises:
            RefusedError: it does not, or nothing satisfies it; the text names the place.
        """
        data = grammar.source.encode()
        if len(data) > GRAMMAR_TOTAL_BYTES:
            raise RefusedError(
                f"{ALL_FIELDS} make a grammar of {len(data)} bytes, "
                f"at most {GRAMMAR_TOTAL_BYTES} are allowed"
            )
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._report(grammar.where)
            if error := compile_error(self._tokenizer, grammar.source):
                raise explain_error(grammar, error, self._compile)
        self.passed[digest] = None

    def _compile(self, source: str, field: str) -> str | None:
        self._report(field)
        return compile_error(self._tokenizer, source)
