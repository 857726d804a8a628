"""How many words of a sentence were heard wrongly."""

import re
from collections.abc import Sequence
from typing import Final

WORD: Final = re.compile(r"[\w']+")


def words_of(text: str) -> list[str]:
    """Give the words of a text, in lower case and without what stands between them."""
    return WORD.findall(text.casefold())


def n_word_errors(said: str, heard: str) -> int:
    """Count the words to change, leave out or put in to make one text of the other."""
    return distance(words_of(said), words_of(heard))


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Give the edit distance of two sequences."""
    row = list(range(len(other) + 1))
    for number, word in enumerate(one, 1):
        above, row = row, [number]
        for place, each in enumerate(other):
            changed = above[place] + (word != each)
            row.append(min(changed, above[place + 1] + 1, row[place] + 1))
    return row[-1]
