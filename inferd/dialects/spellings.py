"""How a model's special tokens are spelled: find them, and what could be part of one."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_FRAME: Final = "<>[]{}()/|｜\"'"  # noqa: RUF001  # DeepSeek has bars of its own
"""Signs that stand around the name in the text of a special token."""

_ESCAPED: Final = "\"'\\"

_Tree = dict[str, "_Tree"]


def is_plain(letter: str) -> bool:
    """Tell whether a character is written as it is, in JSON, too, and never trimmed."""
    return letter.isprintable() and not letter.isspace() and letter not in _ESCAPED


class TokenTexts(NamedTuple):
    """Texts of a vocabulary's special tokens."""

    always: Sequence[str] = ()
    """Of control tokens, and of the one for what is unknown."""
    where_used: Sequence[str] = ()
    """Of tokens that somebody added. Some are a family's markers; others are words that
    were worth a token, or white space."""


class Spellings:
    """Texts to look for, many at once.

    Args:
        texts: of special tokens. A single character, or white space, is just that; and
            none begins with a character that is not plain.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted({each for each in texts if len(each) > 1 and is_plain(each[0])})
        self._trees = _tree(known)
        self._begun: dict[str, re.Pattern[str]] = {}
        self._wholes: dict[str, re.Pattern[str]] = {}
        self._ends = {each[n:] for each in known for n in range(1, len(each))}
        self._end_begins = {each[:2] for each in self._ends}
        self._end_sizes = range(1, max(map(len, self._ends), default=0) + 1)
        self._named = defaultdict[str, list[str]](list)
        for each in known:
            self._named[each.strip(_FRAME)].append(each)
        self.letters = sorted({*filter(is_plain, "".join(known))})
        """All plain characters that tokens have."""

    def warm_up(self) -> None:
        """Make all patterns now, which are made as they are needed otherwise."""
        for letter in self._trees:
            self._begun_with(letter)
            self._wholes_with(letter)

    def begun_in(self, text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
        """Tell which tokens begin in a text, or do so if it goes on in the right way.

        It gives their first characters, and where in such a text they stand.
        """
        for letter in self._trees:
            if letter in text and (begun := self._begun_with(letter)).search(text):
                yield letter, begun

    def end_in(self, text: str) -> int | None:
        """Find a plain character in what a token may go on with to its end.

        It is looked for where a text begins, and stands in all that may be such a rest.
        """
        if text[:1] not in self._end_begins and text[:2] not in self._end_begins:
            return None
        sizes = (n for n in self._end_sizes if text[:n] in self._ends)
        shortest = text[: next(sizes, 0)]
        return next((n for n, letter in enumerate(shortest) if is_plain(letter)), None)

    def name_in(self, text: str) -> int | None:
        """Find the last plain character in a text that signs may make a token of."""
        named = self._named.get(text.strip(_FRAME), ())
        if not any(text in each for each in named):
            return None
        plain = (n for n, letter in enumerate(text) if is_plain(letter))
        return max(plain, default=None)

    def wholes_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Find all tokens in a text, the longest at each place: begin and end."""
        for letter in self._trees:
            if letter in text:
                for found in self._wholes_with(letter).finditer(text):
                    yield found.start(), found.end(1)

    # Patterns are made once they are looked for: it takes half a second for the 6,000
    # tokens without a use that some vocabularies have.

    def _begun_with(self, letter: str) -> re.Pattern[str]:
        if (known := self._begun.get(letter)) is None:
            pattern = re.escape(letter) + f"(?={_begun(self._trees[letter])})"
            known = self._begun[letter] = re.compile(pattern)
        return known

    def _wholes_with(self, letter: str) -> re.Pattern[str]:
        if (known := self._wholes.get(letter)) is None:
            pattern = re.escape(letter) + f"(?=({_longest(self._trees[letter])}))"
            known = self._wholes[letter] = re.compile(pattern)
        return known

    def parted(self, text: str, n_tokens: int) -> Iterator[str]:
        """Cut a text in parts of so many tokens, each part before a token."""
        begin = last_end = n_found = 0
        for at, end in sorted(self.wholes_in(text)):
            if at < last_end:
                continue  # it is inside of another
            if n_found == n_tokens:
                yield text[begin:at]
                begin, n_found = at, 0
            n_found += 1
            last_end = end
        yield text[begin:]


# Patterns for many texts, in which what several begin with is looked at once.


def _tree(texts: Iterable[str]) -> _Tree:
    root: _Tree = {}
    for text in texts:
        node = root
        for letter in text:
            node = node.setdefault(letter, {})
        node[""] = {}
    return root


def _begun(node: _Tree) -> str:
    """Match any of the texts, or where what is searched ends in the midst of one."""
    if "" in node:
        return ""
    ways = [re.escape(letter) + _begun(below) for letter, below in node.items()]
    return f"(?:{'|'.join(ways)}|\\Z)"


def _longest(node: _Tree) -> str:
    """Match the longest of the texts."""
    ways = [
        re.escape(letter) + _longest(below) for letter, below in node.items() if letter
    ]
    if not ways:
        return ""
    return f"(?:{'|'.join(ways)}){'?' if '' in node else ''}"
