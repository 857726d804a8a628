import statistics

import pytest
from hypothesis import given, strategies as st

from bench.figures import Goal, Reading, Round, figure, significant, spread
from bench.quiet import LOUD
from tests.cases import each_case

SPEEDS = st.lists(
    st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=9
)


def rounds(*values, others=0.0):
    return [Round(Reading(each), others) for each in values]


def test_a_figure_has_every_side_and_why_one_is_missing():
    found = figure(
        rounds({"inferd": 90.0, "peer": 100.0}), reasons={"raw": "there is none"}
    )
    assert (found["inferd"], found["peer"], found["raw"]) == (90, 100, None)
    assert (found["ratio_peer"], found["ratio_raw"]) == (0.9, None)
    assert found["reasons"] == {"raw": "there is none"}


def test_a_figure_without_a_peer_says_that_it_was_not_measured():
    found = figure(rounds({"inferd": 1.0}))
    assert set(found["reasons"].values()) == {"not measured in this run"}


@given(SPEEDS)
def test_a_ratio_is_the_median_of_the_rounds_own_ratios(pairs):
    found = figure(rounds(*({"inferd": a, "peer": b} for a, b in pairs)))
    ratios = [a / b for a, b in pairs]
    assert found["ratio_peer"] == significant(statistics.median(ratios))
    assert found["spread"]["ratio_peer"]["min"] == significant(min(ratios))


@given(SPEEDS)
def test_spreads_can_be_computed_again_from_the_rounds(pairs):
    found = figure(rounds(*({"inferd": a, "peer": b} for a, b in pairs)))
    for side in ("inferd", "peer"):
        assert found["spread"][side] == spread([each[side] for each in found["rounds"]])


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_median_is_between_its_ends(values):
    found = spread(values)
    assert found["min"] <= found["median"] <= found["max"]


def test_another_side_has_a_value_and_a_ratio_too():
    found = figure(rounds({"inferd": 3.0, "free": 2.0}))
    assert (found["free"], found["ratio_free"]) == (2, 1.5)


def test_a_side_that_lacks_a_round_has_no_figure():
    found = figure(rounds({"inferd": 3.0, "peer": 2.0}, {"inferd": 3.0}))
    assert (found["peer"], found["ratio_peer"]) == (None, None)


def test_disturbed_rounds_are_counted():
    quiet, loud = rounds({"inferd": 1.0}), rounds({"inferd": 1.0}, others=LOUD * 2)
    found = figure(quiet + loud)
    assert (found["n_rounds"], found["disturbed_rounds"]) == (2, 1)
    assert [each["disturbed"] for each in found["rounds"]] == [False, True]


@each_case(
    ("goal", "medians", "reached"),
    [
        (Goal("inferd", at_most=45), {"inferd": 45}, True),
        (Goal("inferd", at_most=45), {"inferd": 45.1}, False),
        (Goal("ratio_raw", at_least=0.97), {"ratio_raw": 0.97}, True),
        (Goal("ratio_raw", at_least=0.97), {"ratio_raw": 0.96}, False),
        (Goal("ratio_raw", at_least=0.97), {"inferd": 1}, None),
        (Goal("ratio_peer", at_least=1.08, or_raw=0.97), {"ratio_peer": 1.08}, True),
    ],
)
def test_a_goal_is_reached_at_its_bound(goal, medians, reached):
    assert goal.reached(medians) is reached


@pytest.mark.parametrize(("ratio_raw", "reached"), [(0.97, True), (0.96, False)])
def test_who_is_close_to_the_library_has_reached_its_server(ratio_raw, reached):
    goal = Goal("ratio_peer", at_least=1.08, or_raw=0.97)
    assert goal.reached({"ratio_peer": 1.01, "ratio_raw": ratio_raw}) is reached


@each_case(
    ("peer", "raw", "by"),
    [
        (1.08, 1.0, None),
        (0.9, 0.97, "raw"),
        (0.9, 0.96, None),
        (1.08, 0.9, None),
    ],
)
def test_a_goal_that_is_reached_over_the_library_alone_says_so(peer, raw, by):
    goal = Goal("ratio_peer", at_least=1.08, or_raw=0.97)
    told = goal.as_json({"ratio_peer": peer, "ratio_raw": raw})
    assert told.get("reached_by") == by
    assert told["reached"] is (by == "raw" or peer >= 1.08)
    assert "reached_by" not in goal.as_json({"ratio_raw": raw})


def test_a_figure_is_reached_with_all_its_goals():
    goals = (Goal("inferd", at_least=2), Goal("ratio_peer", at_least=1))
    assert figure(rounds({"inferd": 2.0, "peer": 2.0}), goals=goals)["reached"]
    missed = figure(rounds({"inferd": 2.0, "peer": 3.0}), goals=goals)
    assert missed["reached"] is False
    assert missed["goals"]["inferd"] == {"at_least": 2, "reached": True}
    assert figure(rounds({"inferd": 2.0}), goals=goals)["reached"] is None
    assert figure(rounds({"inferd": 2.0}))["reached"] is None
