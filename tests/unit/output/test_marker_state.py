import pytest

from inferd.dialects.dialect import Region
from inferd.output.marker_state import OUTSIDE, MarkerState

THOUGHT = Region(holds="thought", begins=("<t>",), ends=("</t>",))
FIRST = Region(holds="calls", begins=("f{",), only_first=True)
JUDGED = Region(holds="calls", begins=("g{",), classify=lambda _text, _tools: None)
AROUND = Region(holds="nothing", begins=("[",), ends=("",), is_around_calls=True)
STRAY = Region(holds="nothing", begins=("</t>",), ends=("",))
HEADER = Region(holds="text", begins=("<say>",), ends=("</say>",))
KEPT = Region(holds="text", begins=("!",), ends=("",), keeps_begin=True)
ALL = (THOUGHT, FIRST, JUDGED, AROUND, STRAY, HEADER, KEPT)


def openings(*, is_structured=True):
    return MarkerState(ALL, is_structured=is_structured)


def markers(found, place=OUTSIDE):
    ways, _ = found.markers(place)
    return "".join(sorted(ways))


def test_a_region_ends_at_its_own_markers_and_text_where_another_begins():
    free = openings(is_structured=False)
    assert markers(free) == "!</t><say><t>[f{g{"
    assert markers(free, THOUGHT) == "</t>"
    assert markers(free, HEADER) == "!</say></t><say><t>[f{g{"
    assert free.markers(HEADER)[0]["<t>"] is THOUGHT
    assert free.markers(HEADER)[0]["</say>"] is OUTSIDE


def test_white_space_leaves_open_what_comes_first_and_text_does_not():
    free = openings(is_structured=False)
    assert not free.note_text(" \n")
    assert "f{" in markers(free)
    assert free.note_text("a")
    assert markers(free) == "!</t><say><t>[g{"
    assert not free.note_text("b")


def test_after_a_call_nothing_comes_first():
    free = openings(is_structured=False)
    assert free.open_region(JUDGED) is JUDGED
    assert markers(free) == "!</t><say><t>[g{"


def test_before_a_structure_stands_what_the_family_writes_before_text():
    assert markers(openings()) == "<say><t>[f{g{"


@pytest.mark.parametrize("text", [" ", "a"])
def test_nothing_opens_once_a_structure_has_begun(text):
    held = openings()
    assert held.note_text(text)
    assert markers(held) == ""


def test_what_stands_before_a_structure_has_no_end():
    held = openings()
    assert held.open_region(HEADER) is OUTSIDE
    assert markers(held) == ""


def test_one_thought_stands_before_a_structure():
    held = openings()
    assert held.open_region(THOUGHT) is THOUGHT
    assert markers(held, THOUGHT) == "</t>"
    assert held.open_region(OUTSIDE) is OUTSIDE
    assert markers(held) == "<say>[f{g{"


@pytest.mark.parametrize("region", [AROUND, FIRST])
def test_where_there_are_calls_no_structure_follows(region):
    held = openings()
    assert held.open_region(region) is region
    held.note_text("\n")
    assert "g{" in markers(held)


def test_what_was_no_call_after_all_is_the_structure():
    held = openings()
    assert held.open_region(JUDGED) is JUDGED
    held.drop_calls()
    assert markers(held) == ""
    free = openings(is_structured=False)
    free.drop_calls()
    assert "g{" in markers(free)
