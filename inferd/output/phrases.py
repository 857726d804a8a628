"""The first of several phrases in text that comes in pieces."""

import re
from collections.abc import Sequence
from typing import Final

ROOT: Final = 0
"""The node where no phrase has begun."""


class PhraseTree:
    """The beginnings of all phrases as nodes; never changes, so finders may share one.

    Bounds:
        A node for each character of the phrases, some 300 bytes each, and building
        takes about a microsecond a node.

    Source:
        Aho and Corasick, "Efficient string matching" (1975).
    """

    def __init__(self, phrases: Sequence[str]) -> None:
        """Build it.

        Args:
            phrases: what to look for; none may be empty.

        Raises:
            ValueError: a phrase is empty, so it would be found everywhere.
        """
        if "" in phrases:
            raise ValueError("a phrase must not be empty")
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [ROOT]
        self.n_open = [0]
        """For each node, how many of the characters read last may still become a phrase
        that goes on; 0 at the end of a phrase that none continues."""
        self.ended = [""]
        """For each node, the longest phrase that ends there, or nothing."""
        for phrase in phrases:
            self._add(phrase)
        self._link()
        first = re.compile("|".join(map(re.escape, self._next[ROOT])) or "(?!)")
        self.first_in = first.search
        """Finds the first character that begins a phrase."""

    def _add(self, phrase: str) -> None:
        node = ROOT
        for depth, char in enumerate(phrase):
            self.n_open[node] = depth
            children = self._next[node]
            if char not in children:
                children[char] = len(self._next)
                self._next.append({})
                self._fallback.append(ROOT)
                self.n_open.append(0)
                self.ended.append("")
            node = children[char]
        self.ended[node] = phrase

    def _link(self) -> None:
        # Level by level: a node falls back to a shorter beginning, which is complete.
        nodes = [ROOT]
        for node in nodes:
            for char, child in self._next[node].items():
                if node != ROOT:
                    self._fallback[child] = self._after(self._fallback[node], char)
                fallback = self._fallback[child]
                self.ended[child] = self.ended[child] or self.ended[fallback]
                nodes.append(child)

    def _after(self, node: int, char: str) -> int:
        while char not in self._next[node]:
            if node == ROOT:
                return ROOT
            node = self._fallback[node]
        return self._next[node][char]

    def read(self, node: int, text: str, at: int) -> tuple[int, int]:
        """Read one character or, at the root, up to one that begins a phrase.

        Args:
            node: where what was read so far has led.
            text: what to read.
            at: the place of the next character; less than the text's length.

        Returns:
            The node after it, and the place after what was read.
        """
        if node != ROOT:
            return self._after(node, text[at]), at + 1
        begin = self.first_in(text, at)
        if begin is None:
            return ROOT, len(text)
        return self._next[ROOT][begin[0]], begin.end()


class PhraseFinder:
    """Gives text up to the first phrase, and holds back only what may be part of one.

    First is what starts first and, of those that start together, the longest. So a phrase
    waits while another that starts no later is still possible: any split of the same text
    gives the same.

    Bounds:
        Holds less text than the longest phrase. Time is linear in the text.
    """

    def __init__(self, tree: PhraseTree) -> None:
        self.found: str | None = None
        """The phrase, once it is certain; the finder is then at its end."""
        self.rest = ""
        """What came after the phrase in the text that was fed."""
        self._tree = tree
        self._node = ROOT
        self._held = ""
        self._candidate = ""
        self._start = 0  # of the candidate, in what is held

    def feed(self, text: str) -> str:
        """Add text; give what is certain to stand before any phrase, perhaps nothing."""
        tree, node, at = self._tree, self._node, len(self._held)
        if node == ROOT and tree.first_in(text) is None:
            return text
        text = self._held + text
        while at < len(text):
            node, at = tree.read(node, text, at)
            if tree.ended[node]:
                self._consider(tree.ended[node], at)
            if self._candidate and at - tree.n_open[node] > self._start:
                return self._settle(text)
        self._node = node
        return self._keep(text, tree.n_open[node])

    def finish(self) -> str:
        """Give what was held back, or its part before a phrase that waited."""
        if self._candidate:
            return self._settle(self._held)
        return self._keep(self._held, 0)

    def _consider(self, phrase: str, end: int) -> None:
        """Make a phrase that ends here the candidate, if it starts no later."""
        start = end - len(phrase)
        if not self._candidate or start <= self._start:
            self._candidate, self._start = phrase, start

    def _settle(self, text: str) -> str:
        self.found = self._candidate
        self.rest = text[self._start + len(self._candidate) :]
        return text[: self._start]

    def _keep(self, text: str, n_kept: int) -> str:
        cut = len(text) - n_kept
        self._held = text[cut:]
        self._start -= cut
        return text[:cut]
