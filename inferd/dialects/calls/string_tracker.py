"""Track strings inside tool calls, as markers in strings do not count.

A call arrives in pieces, and its end is known only if its strings are. So strings are
tracked while it arrives. If the text turns out to be invalid, as JSON with a bare newline in
a string is, it has no strings, and its first marker counts after all.
"""

import re
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

_BRACKET: Final = re.compile(r"[{\[]")
_NO_TEXT: Final = re.compile(r'["{}\[\]]|[^\s\d:,.+\-truefalsnE]')
"""In JSON outside of strings: quotes, brackets, and characters that are invalid there."""
_NO_LETTER: Final = re.compile(r'["\\\x00-\x1f]')
"""In a JSON string: characters with a meaning other than themselves."""
_TAG: Final = "<parameter="
_NAME_END: Final = re.compile(r"[>\n]")
_SPACE: Final = re.compile(r"\s*")
_GO_ON: Final = frozenset(",:}]")
"""Characters that may follow a string in Gemma's syntax."""


class MissedMarker(NamedTuple):
    """A marker that was skipped as part of a string and was not in one."""

    marker: str
    marker_at: int
    at: int
    """Number of characters up to and including the one that decided it."""


class StringTracker(ABC):
    """Tracker of the strings in one call. Time is linear in the text."""

    def __init__(self) -> None:
        self.missed: MissedMarker | None = None
        """The first marker that was skipped and counts after all."""
        self._n_read = 0
        self._passed: tuple[str, int] | None = None

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the text so far ends in a string."""

    def feed(self, text: str) -> None:
        """Add text, including markers in strings."""
        self._read(text)
        self._n_read += len(text)

    def skip_marker(self, marker: str) -> None:
        """Record that a marker follows that is part of the open string."""
        if self._passed is None:
            self._passed = (marker, self._n_read)

    @abstractmethod
    def _read(self, text: str) -> None:
        """Track more text."""

    def _confirm(self) -> None:
        """Record that all strings so far are valid."""
        self._passed = None

    def _reject(self, at: int) -> None:
        """Record that the text is invalid, as a character of the new text shows."""
        if self._passed is not None and self.missed is None:
            self.missed = MissedMarker(*self._passed, self._n_read + at + 1)


class _Json:
    """Tracker of one JSON object or array, with any text before it."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether it is in a string."""
        self.is_over = False
        self.is_broken = False
        self._is_escaped = False
        self._depth = 0

    def read(self, text: str, at: int) -> int:
        """Read text until the value ends; return the index after the text read."""
        while at < len(text) and not self.is_over:
            at = self._step(text, at)
        return at

    def _step(self, text: str, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        inside = _NO_LETTER if self.is_open else _NO_TEXT
        found = (inside if self._depth else _BRACKET).search(text, at)
        if found is None:
            return len(text)
        self._take(found[0])
        return found.end()

    def _take(self, letter: str) -> None:
        match letter:
            case '"':
                self.is_open = not self.is_open
            case "\\" if self.is_open:
                self._is_escaped = True
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self.is_over = not self._depth
            case _:
                self.is_open = False
                self.is_over = self.is_broken = True


class JsonStringTracker(StringTracker):
    """Tracker of strings in one or several JSON values."""

    def __init__(self) -> None:
        super().__init__()
        self._json = _Json()

    @property
    def is_open(self) -> bool:
        """Whether the text so far ends in a string."""
        return self._json.is_open

    def _read(self, text: str) -> None:
        at = self._json.read(text, 0)
        while self._json.is_over and not self._json.is_broken:
            self._confirm()
            self._json = _Json()
            at = self._json.read(text, at)
        if self._json.is_broken:
            self._reject(at - 1)


class TaggedStringTracker(StringTracker):
    """Tracker of strings in arguments between tags, where those are JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._json: _Json | None = None
        self._follow = self._to_tag
        self._tail = ""

    @property
    def is_open(self) -> bool:
        """Whether the text so far ends in a string."""
        return self._json is not None and self._json.is_open

    def _read(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._follow(text, at)

    def _to_tag(self, text: str, at: int) -> int:
        rest = self._tail + text[at:]
        found = rest.find(_TAG)
        if found < 0:
            self._tail = rest[1 - len(_TAG) :]
            return len(text)
        end = at - len(self._tail) + found + len(_TAG)
        self._tail = ""
        self._follow = self._to_value
        return end

    def _to_value(self, text: str, at: int) -> int:
        found = _NAME_END.search(text, at)
        if found is None:
            return len(text)
        self._follow = self._in_begin if found[0] == ">" else self._to_tag
        return found.end()

    def _in_begin(self, text: str, at: int) -> int:
        if text[at] == "\n":
            self._follow = self._in_value
            return at + 1
        return self._in_value(text, at)

    def _in_value(self, text: str, at: int) -> int:
        if self._json is None:
            if text[at] not in "{[":
                self._follow = self._to_tag
                return at
            self._json = _Json()
            self._follow = self._in_value
        at = self._json.read(text, at)
        if self._json.is_over:
            if self._json.is_broken:
                self._reject(at - 1)
            self._confirm()
            self._json = None
            self._follow = self._to_tag
        return at


class JsonOrTaggedStringTracker(StringTracker):
    """Tracker of strings in calls of either syntax, which their first character tells."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = ""
        self._tracker: StringTracker | None = None

    @property
    def is_open(self) -> bool:
        """Whether the text so far ends in a string."""
        return self._tracker is not None and self._tracker.is_open

    def skip_marker(self, marker: str) -> None:
        """Record that a marker follows that is part of the open string."""
        if self._tracker is not None:
            self._tracker.skip_marker(marker)

    def _read(self, text: str) -> None:
        if self._tracker is None:
            text, self._begun = self._begun + text, ""
            first = text.lstrip()[:1]
            if not first:
                self._begun = text
                return
            self._tracker = (
                TaggedStringTracker() if first == "<" else JsonStringTracker()
            )
        self._tracker.feed(text)
        self.missed = self._tracker.missed


class QuotedStringTracker(StringTracker):
    """Tracker of strings between multi-character quotes, without escapes."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self._quote = quote
        self._is_open = False
        self._has_closed = False
        self._tail = ""

    @property
    def is_open(self) -> bool:
        """Whether the text so far ends in a string."""
        return self._is_open

    def _read(self, text: str) -> None:
        whole = self._tail + text
        offset = len(self._tail)
        at = 0
        while self._has_closed or (found := whole.find(self._quote, at)) >= 0:
            if self._has_closed:
                at = _after_space(whole, at)
                if at == len(whole):
                    break
                self._check(whole[at], at - offset)
            else:
                at = found + len(self._quote)
                self._is_open = not self._is_open
                self._has_closed = not self._is_open
        self._tail = whole[max(at, len(whole) - len(self._quote) + 1) :]

    def _check(self, letter: str, at: int) -> None:
        self._has_closed = False
        if letter not in _GO_ON:
            self._reject(at)
        self._confirm()


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
