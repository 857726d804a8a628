from inferd.decoder import limits
from inferd.limits import MAX_ERROR_CHARS, MAX_FRAME_BYTES
from tests.unit.bounds import unexplained


def test_every_bound_says_what_it_is_for():
    assert unexplained(limits) == []


def test_there_is_memory_for_the_largest_line_many_times_over():
    assert limits.READ_MEMORY_BYTES > 20 * MAX_FRAME_BYTES


def test_no_more_of_a_failure_is_told_than_clients_read():
    assert limits.MAX_FAILURE_CHARS > MAX_ERROR_CHARS
