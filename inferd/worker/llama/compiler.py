"""Say what does not compile: ``python -m inferd.worker.llama.compiler``.

It answers each line, a grammar in JSON, with ``null`` or an error. It imports little, so
that it starts soon, and the kernel ends it where a grammar takes more than it may.
"""

import json
import resource
import signal
import sys
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from inferd.worker.limits import (
    GRAMMAR_COMPILE_BYTES,
    GRAMMAR_COMPILE_S,
    GRAMMAR_LEXER_STATES,
    GRAMMAR_ROW_ITEMS,
    GRAMMAR_STEP_ITEMS,
)

LIMITS: Final = LLParserLimits(
    max_items_in_row=GRAMMAR_ROW_ITEMS,
    step_max_items=GRAMMAR_STEP_ITEMS,
    max_lexer_states=GRAMMAR_LEXER_STATES,
    verbose_errors=False,  # they would quote prompts and answers
)


def error_of(tokenizer: LLTokenizer, source: str) -> str | None:
    """Compile a grammar; give the compiler's words where it does not compile."""
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # for its first byte: some of the work is left to that
    return matcher.get_error() if matcher.is_error() else None


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is the daemon's
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (GRAMMAR_COMPILE_BYTES,) * 2)
    tokenizer = LLTokenizer("byte")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, GRAMMAR_COMPILE_S)
        error = error_of(tokenizer, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(error) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
