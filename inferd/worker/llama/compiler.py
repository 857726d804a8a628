"""Compile grammars with llguidance, within its bounds; the same wherever that is done."""

from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from inferd.worker.limits import (
    GRAMMAR_LEXER_STATES,
    GRAMMAR_ROW_ITEMS,
    GRAMMAR_STEP_ITEMS,
)
from inferd.worker.llama.facts import Words

LIMITS: Final = LLParserLimits(
    max_items_in_row=GRAMMAR_ROW_ITEMS,
    step_max_items=GRAMMAR_STEP_ITEMS,
    max_lexer_states=GRAMMAR_LEXER_STATES,
    verbose_errors=False,  # they would quote prompts and answers
)


class _Tokens:
    """A vocabulary, such as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, words: Words) -> None:
        self.tokens = list(words.spelt)
        self.special_token_ids = list(words.special)
        self.eos_token_id = words.ends[0]
        self._single = {
            text: token for token, text in enumerate(self.tokens) if len(text) == 1
        }

    def __call__(self, text: bytes) -> list[int]:
        """Cut a text into bytes. No grammar of ours has it cut: all forbid forcing."""
        return [self._single[bytes([each])] for each in text]


def words_of(tokenizer: LLTokenizer) -> Words:
    """Give what the same can be built from in another process."""
    tokens = range(tokenizer.vocab_size)
    return Words(
        spelt=[tokenizer.decode_bytes([each]) for each in tokens],
        special=[each for each in tokens if tokenizer.is_special_token(each)],
        ends=tokenizer.eos_tokens,
    )


def tokenizer_of(words: Words) -> LLTokenizer:
    """Build what grammars are compiled for."""
    return LLTokenizer(TokenizerWrapper(_Tokens(words)), eos_token=list(words.ends))


def matcher_of(tokenizer: LLTokenizer, source: str) -> LLMatcher:
    """Compile a grammar; the matcher has an error where it does not compile."""
    return LLMatcher(tokenizer, source, log_level=0, limits=LIMITS)


def error_of(tokenizer: LLTokenizer, source: str) -> str | None:
    """Compile a grammar; give the compiler's words where it does not compile."""
    matcher = matcher_of(tokenizer, source)
    if not matcher.is_error():
        matcher.compute_bitmask()  # for its first token: some of the work is left to that
    return matcher.get_error() if matcher.is_error() else None
