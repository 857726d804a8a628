"""WordPiece vocabularies: the published form, and the form of llama.cpp."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import gguf

SPECIALS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PHANTOM_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_CONTINUES: Final = "##"


def read_vocabulary(path: Path) -> list[str]:
    """Read a ``vocab.txt``: one piece per line; its line number, from 0, is its id."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def add_vocabulary(
    writer: gguf.GGUFWriter, vocabulary: Sequence[str], *, n_segments: int
) -> None:
    """Write the metadata of the tokenizer.

    Args:
        writer: of the file.
        vocabulary: the pieces as published.
        n_segments: number of copies; the tokenizer only uses ids of the first.
    """
    n_unused = (n_segments - 1) * len(vocabulary)
    unused = [f"[unused piece {number}]" for number in range(n_unused)]
    kinds = [_kind(piece) for piece in vocabulary]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*map(_stored, vocabulary), *unused])
    writer.add_token_types([*kinds, *[gguf.TokenType.UNUSED] * n_unused])
    padding, unknown, begin, end, mask = map(vocabulary.index, SPECIALS)
    writer.add_bos_token_id(begin)
    writer.add_eos_token_id(end)
    writer.add_unk_token_id(unknown)
    writer.add_sep_token_id(end)
    writer.add_pad_token_id(padding)
    writer.add_mask_token_id(mask)


def _kind(piece: str) -> gguf.TokenType:
    kinds = gguf.TokenType
    return kinds.CONTROL if piece in SPECIALS else kinds.NORMAL


def _stored(piece: str) -> str:
    """Mark the pieces that begin a word, instead of those that continue one."""
    if piece in SPECIALS:
        return piece
    if piece.startswith(_CONTINUES):
        return piece.removeprefix(_CONTINUES)
    return _PHANTOM_SPACE + piece
