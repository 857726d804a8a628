"""Tokenise rendered prompts."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from inferd.dialects.prompt.special_tokens import SpecialTokenTexts
from inferd.worker.backend import RefusedError
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.weights import LlamaModel

_NO_TEXT: Final = llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_UNKNOWN
_ADDED: Final = llama.LLAMA_TOKEN_ATTR_USER_DEFINED


def single_token_texts(model: LlamaModel) -> SpecialTokenTexts:
    """Return the texts that become a single token anywhere in a prompt."""
    always: list[str] = []
    where_used: list[str] = []
    for token in range(model.n_vocab):
        kind = llama.llama_vocab_get_attr(model.vocab, token)
        if kind & (_NO_TEXT | _ADDED):
            text = llama.llama_vocab_get_text(model.vocab, token)
            texts = always if kind & _NO_TEXT else where_used
            texts.append(text.decode("utf-8", "replace"))
    return SpecialTokenTexts(always, where_used)


def refuse_unknown(tokens: Sequence[int], n_vocab: int, where: str) -> None:
    """Check that a client's tokens are in the model's vocabulary.

    Args:
        tokens: at least one, none negative.
        n_vocab: number of the model's tokens.
        where: what the client calls them.

    Raises:
        RefusedError: the first that is not, with its index.
    """
    if max(tokens) < n_vocab:
        return
    index = next(i for i, token in enumerate(tokens) if token >= n_vocab)
    raise RefusedError(
        f"{where}[{index}] {tokens[index]} not in [0, {n_vocab - 1}], the model's vocabulary"
    )


def split_at_marker(marker: str, pieces: Sequence[str]) -> list[list[str]]:
    """Split a prompt at each occurrence of a marker, which is removed.

    Args:
        marker: the text to split at.
        pieces: of the prompt, each tokenised separately.

    Returns:
        Lists of pieces before, between and after the markers.
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


def tokenize_prompt(
    model: LlamaModel, texts: Sequence[Sequence[str]]
) -> list[list[int]]:
    """Tokenise a prompt, each of its pieces separately.

    Args:
        model: the model.
        texts: pieces of the texts before, between and after media.
    """
    pieces = [piece for text in texts for piece in text]
    first, *others = pieces
    if not others:
        return [model.tokenize(first)]
    bos = model.special_tokens()["bos_token"]
    has_bos = bool(bos) and first.startswith(bos)
    newline = _tokenize_piece(model, "\n") if _is_sentence_piece(model) else []
    tokenized = iter(
        [
            _tokenize_piece(model, first),
            *(_tokenize_continuation(model, each, newline) for each in others),
        ]
    )
    tokens = [[token for _ in text for token in next(tokenized)] for text in texts]
    if not has_bos:
        tokens[0][:0] = model.bos_tokens
        tokens[-1] += model.eos_tokens
    return tokens


def _tokenize_continuation(
    model: LlamaModel, text: str, newline: list[int]
) -> list[int]:
    """Tokenise a piece that continues a text.

    SentencePiece may add a space before any text, which a newline in front prevents.
    """
    if newline:
        tokens = _tokenize_piece(model, f"\n{text}")
        if tokens[: len(newline)] == newline:
            return tokens[len(newline) :]
    return _tokenize_piece(model, text)


def _tokenize_piece(model: LlamaModel, text: str) -> list[int]:
    return model.tokenize_raw(text, adds_special=False, parses_special=True)


def _is_sentence_piece(model: LlamaModel) -> bool:
    return bool(llama.llama_vocab_type(model.vocab) == llama.LLAMA_VOCAB_TYPE_SPM)
