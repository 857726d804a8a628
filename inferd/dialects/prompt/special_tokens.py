"""Search text for the spellings of a model's special tokens, and for parts of them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_FRAME: Final = "<>[]{}()/|｜\"'"  # noqa: RUF001  # DeepSeek has bars of its own
"""Characters around the name in the text of a special token."""

_ESCAPED: Final = "\"'\\"

_Tree = dict[str, "_Tree"]


def is_plain(letter: str) -> bool:
    """Return whether a character is never escaped, not even in JSON, and never trimmed."""
    return letter.isprintable() and not letter.isspace() and letter not in _ESCAPED


class SpecialTokenTexts(NamedTuple):
    """Texts of a vocabulary's special tokens."""

    always: Sequence[str] = ()
    """Texts of control tokens and of the unknown token."""
    where_used: Sequence[str] = ()
    """Texts of user-defined tokens. Some are markers of a family; others are frequent words
    or white space. They count only if the template or the dialect uses them."""


class SpecialTokens:
    """Searcher for the texts of special tokens.

    Args:
        texts: of special tokens. Texts of one character, and those that do not begin with a
            plain character, are ignored.
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
        """All plain characters that occur in special tokens."""

    def warm_up(self) -> None:
        """Compile all patterns now, which would otherwise be compiled on first use."""
        for letter in self._trees:
            self._begun_with(letter)
            self._wholes_with(letter)

    def starts_in(self, text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
        """Find tokens that begin in a text, complete or cut off by its end.

        Yields:
            A first character of such tokens, and a pattern that finds those that begin with
            it.
        """
        for letter in self._trees:
            if letter in text and (begun := self._begun_with(letter)).search(text):
                yield letter, begun

    def tail_in(self, text: str) -> int | None:
        """Return the index of a plain character in the end of a token that starts a text.

        The character is part of every token end with which the text begins. ``None`` if it
        begins with none.
        """
        if text[:1] not in self._end_begins and text[:2] not in self._end_begins:
            return None
        sizes = (n for n in self._end_sizes if text[:n] in self._ends)
        shortest = text[: next(sizes, 0)]
        return next((n for n, letter in enumerate(shortest) if is_plain(letter)), None)

    def name_in(self, text: str) -> int | None:
        """Return the index of the last plain character if brackets could make a token."""
        named = self._named.get(text.strip(_FRAME), ())
        if not any(text in each for each in named):
            return None
        plain = (n for n, letter in enumerate(text) if is_plain(letter))
        return max(plain, default=None)

    def tokens_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Return begin and end of all tokens in a text, the longest at every position."""
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

    def split_every(self, text: str, n_tokens: int) -> Iterator[str]:
        """Split a text before a token, so that every part has at most ``n_tokens``."""
        begin = last_end = n_found = 0
        for at, end in sorted(self.tokens_in(text)):
            if at < last_end:
                continue  # it is inside of another
            if n_found == n_tokens:
                yield text[begin:at]
                begin, n_found = at, 0
            n_found += 1
            last_end = end
        yield text[begin:]


# Patterns for many texts, in which common prefixes are merged.


def _tree(texts: Iterable[str]) -> _Tree:
    root: _Tree = {}
    for text in texts:
        node = root
        for letter in text:
            node = node.setdefault(letter, {})
        node[""] = {}
    return root


def _begun(node: _Tree) -> str:
    """Match any of the texts, or a prefix of one at the end of the searched text."""
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
