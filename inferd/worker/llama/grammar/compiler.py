"""Compile grammars with llguidance, under the same limits in the worker and preparer."""

from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from inferd.limits.worker import (
    GRAMMAR_LEXER_STATES,
    GRAMMAR_ROW_ITEMS,
    GRAMMAR_STEP_ITEMS,
)
from inferd.worker.llama.prepare.model_info import TokenTable

LIMITS: Final = LLParserLimits(
    max_items_in_row=GRAMMAR_ROW_ITEMS,
    step_max_items=GRAMMAR_STEP_ITEMS,
    max_lexer_states=GRAMMAR_LEXER_STATES,
    verbose_errors=False,  # they would quote prompts and answers
)


class _Tokens:
    """A vocabulary with the attributes that llguidance expects."""

    bos_token_id = None

    def __init__(self, token_table: TokenTable) -> None:
        self.tokens = list(token_table.token_bytes)
        self.special_token_ids = list(token_table.special)
        self.eos_token_id = token_table.ends[0]
        self._single = {
            text: token for token, text in enumerate(self.tokens) if len(text) == 1
        }

    def __call__(self, text: bytes) -> list[int]:
        """Tokenise a text byte by byte; unused, because all grammars set ``no_forcing``."""
        return [self._single[bytes([each])] for each in text]


def token_table_of(tokenizer: LLTokenizer) -> TokenTable:
    """Return a table from which another process builds the same tokenizer."""
    tokens = range(tokenizer.vocab_size)
    return TokenTable(
        token_bytes=[tokenizer.decode_bytes([each]) for each in tokens],
        special=[each for each in tokens if tokenizer.is_special_token(each)],
        ends=tokenizer.eos_tokens,
    )


def tokenizer_of(token_table: TokenTable) -> LLTokenizer:
    """Build the tokenizer that grammars are compiled for."""
    return LLTokenizer(
        TokenizerWrapper(_Tokens(token_table)), eos_token=list(token_table.ends)
    )


def matcher_of(tokenizer: LLTokenizer, source: str) -> LLMatcher:
    """Compile a grammar; the matcher has an error where it does not compile."""
    return LLMatcher(tokenizer, source, log_level=0, limits=LIMITS)


def compile_error(tokenizer: LLTokenizer, source: str) -> str | None:
    """Compile a grammar; return the compiler's error message if it fails."""
    matcher = matcher_of(tokenizer, source)
    if not matcher.is_error():
        matcher.compute_bitmask()  # for the first token: some of the work is deferred to it
    return matcher.get_error() if matcher.is_error() else None
