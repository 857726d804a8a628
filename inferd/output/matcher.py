"""Find the first of several phrases in text that arrives in pieces."""

import re
from collections.abc import Sequence
from typing import Final

ROOT: Final = 0
"""The node where no phrase has begun."""


class PhraseAutomaton:
    """Aho-Corasick automaton of several phrases; immutable, so matchers may share one.

    Bounds:
        At most one node per character of the phrases, about 300 bytes each; building takes
        about a microsecond per node.

    Source:
        Aho and Corasick, "Efficient string matching" (1975).
    """

    def __init__(self, phrases: Sequence[str]) -> None:
        """Build the automaton.

        Args:
            phrases: phrases to find; none may be empty.

        Raises:
            ValueError: a phrase is empty, so it would match everywhere.
        """
        if "" in phrases:
            raise ValueError("a phrase must not be empty")
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [ROOT]
        self.n_open = [0]
        """By node: number of last characters read that may still become a phrase; 0 at the
        end of a phrase that no other continues."""
        self.ended = [""]
        """By node: the longest phrase that ends there, or an empty string."""
        for phrase in phrases:
            self._add(phrase)
        self._link()
        first = re.compile("|".join(map(re.escape, self._next[ROOT])) or "(?!)")
        self.first_in = first.search
        """Search for the first character that begins a phrase."""

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
        # Breadth first: a node falls back to a shorter prefix, which is linked already.
        nodes = [ROOT]
        for node in nodes:
            for char, child in self._next[node].items():
                if node != ROOT:
                    self._fallback[child] = self._next_node(self._fallback[node], char)
                fallback = self._fallback[child]
                self.ended[child] = self.ended[child] or self.ended[fallback]
                nodes.append(child)

    def _next_node(self, node: int, char: str) -> int:
        while char not in self._next[node]:
            if node == ROOT:
                return ROOT
            node = self._fallback[node]
        return self._next[node][char]

    def read(self, node: int, text: str, at: int) -> tuple[int, int]:
        """Read one character or, at the root, up to one that begins a phrase.

        Args:
            node: the current node.
            text: the text to read.
            at: index of the next character; less than the length of the text.

        Returns:
            The next node, and the index after the characters read.
        """
        if node != ROOT:
            return self._next_node(node, text[at]), at + 1
        begin = self.first_in(text, at)
        if begin is None:
            return ROOT, len(text)
        return self._next[ROOT][begin[0]], begin.end()


class PhraseMatcher:
    """Filter that passes text up to the first phrase, and holds back possible parts of one.

    The phrase that starts first counts and, of those that start together, the longest. So a
    complete phrase waits while another that starts no later is still possible. Any split of
    the same text gives the same result.

    Bounds:
        Holds less text than the longest phrase. Time is linear in the text.
    """

    def __init__(self, tree: PhraseAutomaton) -> None:
        self.found: str | None = None
        """The phrase, once it is certain; the matcher is finished then."""
        self.rest = ""
        """Text that was fed after the phrase."""
        self._tree = tree
        self._node = ROOT
        self._held = ""
        self._candidate = ""
        self._start = 0  # of the candidate, in the held text

    def feed(self, text: str) -> str:
        """Add text; return the text that can no longer be part of a phrase, possibly none."""
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
        return self._hold(text, tree.n_open[node])

    def finish(self) -> str:
        """End the text; return the held text, or its part before a waiting phrase."""
        if self._candidate:
            return self._settle(self._held)
        return self._hold(self._held, 0)

    def _consider(self, phrase: str, end: int) -> None:
        """Make a phrase that ends here the candidate if it starts no later."""
        start = end - len(phrase)
        if not self._candidate or start <= self._start:
            self._candidate, self._start = phrase, start

    def _settle(self, text: str) -> str:
        self.found = self._candidate
        self.rest = text[self._start + len(self._candidate) :]
        return text[: self._start]

    def _hold(self, text: str, n_held: int) -> str:
        cut = len(text) - n_held
        self._held = text[cut:]
        self._start -= cut
        return text[:cut]
