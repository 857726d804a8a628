"""Say what does not compile, in the process that ``helper`` starts.

The first line that it reads is a vocabulary, and answered with ``null``. Each further one
is a grammar in JSON, and answered with ``null``, with an error as a text, or with the
status, a number, of the process that ended over it.

That process is a fork: the kernel ends it where a grammar takes more than it may, and the
next one has the vocabulary's trie at once, which takes seconds to build. It alone sees
grammars, so it gives up to start any process. All imports are small, so that it starts
soon.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final, NamedTuple

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from inferd.worker.limits import (
    GRAMMAR_COMPILE_BYTES,
    GRAMMAR_COMPILE_S,
    GRAMMAR_COMPILE_STACK_BYTES,
    GRAMMAR_LEXER_STATES,
    GRAMMAR_ROW_ITEMS,
    GRAMMAR_STEP_ITEMS,
)
from inferd.worker.parent import die_with
from inferd.worker.sandbox import refuse_processes

LIMITS: Final = LLParserLimits(
    max_items_in_row=GRAMMAR_ROW_ITEMS,
    step_max_items=GRAMMAR_STEP_ITEMS,
    max_lexer_states=GRAMMAR_LEXER_STATES,
    verbose_errors=False,  # they would quote prompts and answers
)


class Tokens(NamedTuple):
    """A vocabulary, such as JSON can hold it."""

    spelt: list[str]
    """The bytes of each token as characters of Latin-1."""
    special: list[int]
    """Tokens that no text spells."""
    ends: list[int]
    """Tokens that end a turn; one at least."""


class _Words:
    """A vocabulary, such as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = [text.encode("latin-1") for text in tokens.spelt]
        self.special_token_ids = tokens.special
        self.eos_token_id = tokens.ends[0]

    def __call__(self, text: bytes) -> list[int]:
        """Cut a text into bytes. No grammar of ours has it cut: all forbid forcing."""
        return [self.tokens.index(bytes([each])) for each in text]


def tokens_of(tokenizer: LLTokenizer) -> Tokens:
    """Give what the same can be built from in another process."""
    tokens = range(tokenizer.vocab_size)
    return Tokens(
        [tokenizer.decode_bytes([each]).decode("latin-1") for each in tokens],
        [each for each in tokens if tokenizer.is_special_token(each)],
        tokenizer.eos_tokens,
    )


def tokenizer_of(tokens: Tokens) -> LLTokenizer:
    """Build what grammars are compiled for."""
    return LLTokenizer(TokenizerWrapper(_Words(tokens)), eos_token=tokens.ends)


def error_of(tokenizer: LLTokenizer, source: str) -> str | None:
    """Compile a grammar; give the compiler's words where it does not compile."""
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # for its first token: some of the work is left to that
    return matcher.get_error() if matcher.is_error() else None


def main() -> None:
    """Serve until the input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer = tokenizer_of(Tokens(*json.loads(sys.stdin.readline())))
    _answer(None)  # nothing is written before: forks share no text that is read ahead
    parent = os.getpid()
    while process := os.fork():
        _, status = os.waitpid(process, 0)
        if not status:
            return
        _answer(os.waitstatus_to_exitcode(status))
    die_with(parent)
    refuse_processes()
    _compile_all(tokenizer)


def _compile_all(tokenizer: LLTokenizer) -> None:
    _limit(resource.RLIMIT_STACK, GRAMMAR_COMPILE_STACK_BYTES)
    _limit(resource.RLIMIT_AS, _address_space() + GRAMMAR_COMPILE_BYTES)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, GRAMMAR_COMPILE_S)
        error = error_of(tokenizer, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(error)


def _limit(what: int, n_bytes: int) -> None:
    _, most = resource.getrlimit(what)
    resource.setrlimit(what, (n_bytes, most))


def _address_space() -> int:
    """Give the bytes that the process has by now."""
    n_pages = int(Path("/proc/self/statm").read_text().split()[0])
    return n_pages * resource.getpagesize()


def _answer(answer: str | int | None) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
