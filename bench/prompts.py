"""What is asked: texts of a given length, no two of which begin alike."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.embed import WORDS

SHORT: Final = 16
LONG: Final = 64
"""Words of the two texts by which a model's tokens are counted."""
SUBJECTS: Final = (
    *("lighthouse", "library", "market", "garden"),
    *("harbour", "mountain", "engine", "bridge"),
)


def words(n_words: int, seed: int) -> str:
    """Make a text of so many words, the same one for the same seed."""
    chance = random.Random(seed)  # noqa: S311  # nobody's secret
    return " ".join(chance.choices(WORDS.split(), k=n_words))


def story(seed: int) -> str:
    """Ask for a text that does not soon end."""
    subject = SUBJECTS[seed % len(SUBJECTS)]
    return f"{seed}. Write a long story about a {subject} and the sea, in many words."


@dataclass(frozen=True)
class Lengths:
    """How a model counts our texts."""

    per_word: float = 1.0
    """Tokens."""
    around: float = 0.0
    """Tokens of the chat template."""

    def text(self, n_tokens: int, seed: int) -> str:
        """Make a text that is a prompt of about so many tokens, unlike any other."""
        n_words = max(1, int((n_tokens - self.around) / self.per_word))
        return numbered(n_words, seed)


def measured_lengths(n_tokens_of: Callable[[str], int]) -> Lengths:
    """Have two texts counted, and draw the line through them.

    A server that does not tell is taken to see a token in each word.
    """
    short, long = (n_tokens_of(numbered(n_words, 0)) for n_words in (SHORT, LONG))
    if not short < long:
        return Lengths()
    per_word = (long - short) / (LONG - SHORT)
    return Lengths(per_word, short - per_word * SHORT)


def numbered(n_words: int, seed: int) -> str:
    """Make a text with a beginning of its own."""
    return f"{seed}. {words(n_words, seed)}"
