from inferd import limits as common
from inferd.server import limits
from tests.unit.bounds import unexplained


def test_every_bound_says_what_it_is_for():
    assert unexplained(limits) == []


def test_a_list_of_requests_is_small_beside_a_frame():
    n_bytes = limits.MAX_LISTED_REQUESTS * limits.MAX_LISTED_ID_CHARS
    assert n_bytes < common.MAX_FRAME_BYTES / 10
    assert limits.MAX_LISTED_ID_CHARS < common.MAX_ID_CHARS
