"""Cut text at the first stop string."""

from collections.abc import Sequence

from inferd.output.matcher import PhraseAutomaton, PhraseMatcher


class StopMatcher:
    """Filter that passes text until a stop string, and drops that and all text after it.

    The stop string that starts first counts and, of those that start together, the longest.
    Only text that may be part of one is held back. Any split of the same text gives the
    same result.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Create a filter.

        Args:
            stops: stop strings, none empty; without any, all text passes.

        Raises:
            ValueError: a stop string is empty.
        """
        self.matched: str | None = None
        """The stop string that ended the text, once it is certain which one."""
        self._matcher = PhraseMatcher(PhraseAutomaton(stops)) if stops else None

    def feed(self, text: str) -> str:
        """Add text; return the text that may be sent now, possibly none."""
        if self._matcher is None:
            return text
        if self.matched is not None:
            return ""
        safe = self._matcher.feed(text)
        self.matched = self._matcher.found
        return safe

    def finish(self) -> str:
        """End the text; return the text that was held back and is not a stop string."""
        if self._matcher is None or self.matched is not None:
            return ""
        safe = self._matcher.finish()
        self.matched = self._matcher.found
        return safe
