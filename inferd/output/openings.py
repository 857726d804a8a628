"""What may open a region, by what has come of an answer."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from inferd.dialects.dialect import Region
from inferd.output.phrases import PhraseTree

OUTSIDE: Final = Region(holds="text", begins=())
"""Where no region is open."""
Ways = tuple[dict[str, Region], PhraseTree]
"""Markers, and where each leads; and the same to be looked for."""


class Openings:
    """Which regions may open, and which marker counts where.

    What a structure governs is text whatever it holds. So there a region opens before its
    first character alone: one thought, and calls in its place. After a marker that stands
    before text, nothing opens.

    Args:
        regions: the dialect's. Of two with the same begin, the first counts.
        is_structured: what is neither a thought nor calls is one text to its end.
    """

    def __init__(self, regions: Sequence[Region], *, is_structured: bool) -> None:
        self._is_structured = is_structured
        if is_structured:
            regions = [each for each in regions if _may_come_first(each)]
        self._regions = tuple(regions)
        self._is_fresh = True  # no call yet, and no text but white space

    def ways(self, place: Region) -> Ways:
        """Give the markers that matter in a place, and where each leads."""
        return _ways_out(self._regions, place, is_fresh=self._is_fresh)

    def has_begun(self, text: str) -> bool:
        """Note text outside; tell whether other markers count now."""
        if not self._is_fresh or (text.isspace() and not self._is_structured):
            return False
        self._is_fresh = False
        self.has_no_calls()
        return True

    def has_no_calls(self) -> None:
        """Note that what might have been calls is text, and so is the rest of it."""
        if self._is_structured:
            self._regions = ()

    def opened(self, region: Region) -> Region:
        """Note what a marker opens; give where that leads."""
        self._is_fresh &= region.holds != "calls"
        if self._is_structured and region.holds == "thought":
            self._regions = tuple(
                each for each in self._regions if each.holds != "thought"
            )
        elif region.is_for_calls:
            self._is_structured &= region.judge is not None
        elif self._is_structured and region is not OUTSIDE:
            self._is_fresh = False
            self._regions = ()
            return OUTSIDE
        return region


def _may_come_first(region: Region) -> bool:
    """Whether a region may come before what a structure governs, or in its place."""
    is_header = region.holds == "text" and not region.keeps_begin
    return is_header or region.holds == "thought" or region.is_for_calls


@lru_cache(maxsize=256)  # some ten for each family
def _ways_out(regions: tuple[Region, ...], place: Region, *, is_fresh: bool) -> Ways:
    ways = dict.fromkeys(filter(None, place.ends), OUTSIDE)
    for region in regions if place.holds == "text" else ():
        if is_fresh or not region.only_first:
            ways = {**dict.fromkeys(region.begins, region), **ways}
    return ways, PhraseTree([*ways])
