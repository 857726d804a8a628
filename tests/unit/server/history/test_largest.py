from collections import Counter

from hypothesis import given, settings, strategies as st

from inferd.server.history.largest import LargestCount

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40)


@settings(max_examples=30)
@given(CHANGES)
def test_the_largest_count_is_that_of_a_counter(changes: list[tuple[bool, int]]):
    counts: LargestCount[int] = LargestCount()
    expected: Counter[int] = Counter()
    for is_more, key in changes:
        if is_more:
            counts.add(key)
        elif expected[key]:
            counts.remove(key)
        expected[key] += 1 if is_more else -bool(expected[key])
        assert len(counts) == sum(each > 0 for each in expected.values())
        if len(counts):
            assert expected[counts.largest()] == max(expected.values())


def test_of_equal_counts_the_oldest_is_the_largest():
    counts: LargestCount[str] = LargestCount()
    for key in "abba":
        counts.add(key)
    assert counts.largest() == "b"
    counts.remove("b")
    assert counts.largest() == "a"
