"""Turn a rendered prompt into tokens."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
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


def cut_at(marker: str, pieces: Sequence[str]) -> list[list[str]]:
    """Cut a prompt where a marker stands, which is left out.

    Args:
        marker: that the pieces' text has some times.
        pieces: of the prompt, each tokenised apart.

    Returns:
        Pieces before, between and behind the markers.
    """
    text = "".join(pieces)
    seams = list(accumulate(map(len, pieces)))
    texts: list[list[str]] = []
    begin = 0
    for part in text.split(marker):
        end = begin + len(part)
        inner = [seam for seam in seams if begin < seam < end]
        texts.append([text[a:b] for a, b in pairwise([begin, *inner, end])])
        begin = end + len(marker)
    return texts


def tokenize_prompt(model: Model, texts: Sequence[Sequence[str]]) -> list[list[int]]:
    """Cut a prompt into tokens, each of its pieces apart.

    Args:
        model: that reads it.
        texts: between which something else stands, each in pieces.
    """
    pieces = [piece for text in texts for piece in text]
    first, *others = pieces
    if not others:
        return [model.tokenize(first)]
    bos = model.special_tokens()["bos_token"]
    has_bos = bool(bos) and first.startswith(bos)
    newline = _cut(model, "\n") if _is_sentence_piece(model) else []
    cut = iter(
        [_cut(model, first), *(_cut_on(model, each, newline) for each in others)]
    )
    tokens = [[token for _ in text for token in next(cut)] for text in texts]
    if not has_bos:
        tokens[0][:0] = model.begin
        tokens[-1] += model.end
    return tokens


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
