"""See that grammars compile, and say of those that do not what is wrong where.

The compiler has bounds, but not on all that it does: a schema of a few hundred bytes can
keep it busy for minutes, take gigabytes, or crash it. It is native code, and nothing but
the kernel can stop it: so this runs in a process that serves one request.

What is tried is exactly what is compiled later: the same text, for the same tokens, under
the same limits. Whatever differed could be made to pass here and to take hours there.
"""

import hashlib
from collections.abc import Callable, Collection

from llguidance import LLTokenizer

from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_TOTAL_BYTES
from inferd.worker.llama.blame import blamed
from inferd.worker.llama.compiler import error_of
from inferd.worker.llama.grammar import ALL_FIELDS, Grammar


class Trial:
    """Tries the grammars of one request.

    Args:
        tokenizer: whose vocabulary they are compiled for.
        known: digests of those that need not be tried.
        tell: told the field before each is compiled, which may be the last thing it does.
    """

    def __init__(
        self,
        tokenizer: LLTokenizer,
        known: Collection[bytes] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tokenizer = tokenizer
        self._known = frozenset(known)
        self._tell = tell
        self.passed: dict[bytes, None] = {}
        """Digests of those that compile."""

    def check(self, grammar: Grammar) -> None:
        """See that a grammar compiles.

        Raises:
            RefusedError: it does not, or nothing satisfies it; the text says where.
        """
        data = grammar.source.encode()
        if len(data) > GRAMMAR_TOTAL_BYTES:
            raise RefusedError(
                f"{ALL_FIELDS} make a grammar of {len(data)} bytes, "
                f"at most {GRAMMAR_TOTAL_BYTES} are allowed"
            )
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._tell(grammar.where)
            if error := error_of(self._tokenizer, grammar.source):
                raise blamed(grammar, error, self._compile)
        self.passed[digest] = None

    def _compile(self, source: str, field: str) -> str | None:
        self._tell(field)
        return error_of(self._tokenizer, source)
