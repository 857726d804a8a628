"""Text up to the first stop string."""

from collections.abc import Sequence

from inferd.output.phrases import PhraseFinder, PhraseTree


class StopMatcher:
    """Gives text until a stop string occurs; of that, and of what follows, nothing.

    The stop string that starts first counts and, of those that start together, the
    longest. Held back is only what may be part of one: any split of the same text gives
    the same text and the same match.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Look for these.

        Args:
            stops: none may be empty; none at all lets every text pass.

        Raises:
            ValueError: a stop string is empty.
        """
        self.matched: str | None = None
        """The stop string that ended the text, once it is certain which one."""
        self._finder = PhraseFinder(PhraseTree(stops))

    def feed(self, text: str) -> str:
        """Add text; give what may be sent by now, perhaps nothing."""
        if self.matched is not None:
            return ""
        safe = self._finder.feed(text)
        self.matched = self._finder.found
        return safe

    def finish(self) -> str:
        """Say that no more text comes; give what was held back and is no stop string."""
        if self.matched is not None:
            return ""
        safe = self._finder.finish()
        self.matched = self._finder.found
        return safe
