"""Turn a rendered prompt into tokens."""

from collections.abc import Sequence
from typing import Final

from inferd.dialects.spellings import TokenTexts
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Model

_NO_TEXT: Final = llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_UNKNOWN
_ADDED: Final = llama.LLAMA_TOKEN_ATTR_USER_DEFINED


def token_texts(model: Model) -> TokenTexts:
    """Give the texts that become one token each wherever they stand in a prompt."""
    always: list[str] = []
    where_used: list[str] = []
    for token in range(model.n_vocab):
        kind = llama.llama_vocab_get_attr(model.vocab, token)
        if kind & (_NO_TEXT | _ADDED):
            text = llama.llama_vocab_get_text(model.vocab, token)
            texts = always if kind & _NO_TEXT else where_used
            texts.append(text.decode("utf-8", "replace"))
    return TokenTexts(always, where_used)


def tokenize_prompt(model: Model, pieces: Sequence[str]) -> list[int]:
    """Cut a prompt into tokens, each of its pieces apart."""
    first, *others = pieces
    if not others:
        return model.tokenize(first)
    bos = model.special_tokens()["bos_token"]
    has_bos = bool(bos) and first.startswith(bos)
    tokens = _cut(model, first)
    newline = _cut(model, "\n") if _is_sentence_piece(model) else []
    for each in others:
        tokens += _cut_on(model, each, newline)
    return tokens if has_bos else [*model.begin, *tokens, *model.end]


def _cut_on(model: Model, text: str, newline: list[int]) -> list[int]:
    """Cut what goes on in the midst of a word.

    SentencePiece may begin any text with a space, which a newline keeps away.
    """
    if newline:
        tokens = _cut(model, f"\n{text}")
        if tokens[: len(newline)] == newline:
            return tokens[len(newline) :]
    return _cut(model, text)


def _cut(model: Model, text: str) -> list[int]:
    return model.cut(text, adds_special=False, parses_special=True)


def _is_sentence_piece(model: Model) -> bool:
    return bool(llama.llama_vocab_type(model.vocab) == llama.LLAMA_VOCAB_TYPE_SPM)
