"""Decide which markers count at the current position of an answer."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from inferd.dialects.dialect import Region
from inferd.output.matcher import PhraseAutomaton

OUTSIDE: Final = Region(holds="text", begins=())
"""The region of plain text, where no other is open."""
Markers = tuple[dict[str, Region], PhraseAutomaton]
"""Markers with the regions that they open, and an automaton to find them."""


class MarkerState:
    """State that decides which regions may open and which markers count.

    Structured text contains no markers. So with a structure, regions open only before its
    first character: one thought, or calls instead of the text. After a marker that
    introduces text, none opens.

    Args:
        regions: of the dialect. Of two with the same begin marker, the first counts.
        is_structured: whether the text of the answer has a structure.
    """

    def __init__(self, regions: Sequence[Region], *, is_structured: bool) -> None:
        self._is_structured = is_structured
        if is_structured:
            regions = [each for each in regions if _may_come_first(each)]
        self._regions = tuple(regions)
        self._is_fresh = True  # no call yet, and no text but white space

    def markers(self, current: Region) -> Markers:
        """Return the markers that count in a region, with the regions that they open."""
        return _markers(self._regions, current, is_fresh=self._is_fresh)

    def note_text(self, text: str) -> bool:
        """Record plain text; return whether the set of markers changes."""
        if not self._is_fresh or (text.isspace() and not self._is_structured):
            return False
        self._is_fresh = False
        self.drop_calls()
        return True

    def drop_calls(self) -> None:
        """Record that possible calls are structured text, and so is all that follows."""
        if self._is_structured:
            self._regions = ()

    def open_region(self, region: Region) -> Region:
        """Record a region that a marker opens; return the region that is now current."""
        self._is_fresh &= region.holds != "calls"
        if self._is_structured and region.holds == "thought":
            self._regions = tuple(
                each for each in self._regions if each.holds != "thought"
            )
        elif region.is_for_calls:
            self._is_structured &= region.classify is not None
        elif self._is_structured and region is not OUTSIDE:
            self._is_fresh = False
            self._regions = ()
            return OUTSIDE
        return region


def _may_come_first(region: Region) -> bool:
    """Return whether a region may come before structured text, or instead of it."""
    is_header = region.holds == "text" and not region.keeps_begin
    return is_header or region.holds == "thought" or region.is_for_calls


@lru_cache(maxsize=256)  # about ten per family
def _markers(
    regions: tuple[Region, ...], current: Region, *, is_fresh: bool
) -> Markers:
    targets = dict.fromkeys(filter(None, current.ends), OUTSIDE)
    for region in regions if current.holds == "text" else ():
        if is_fresh or not region.only_first:
            targets = {**dict.fromkeys(region.begins, region), **targets}
    return targets, PhraseAutomaton([*targets])
