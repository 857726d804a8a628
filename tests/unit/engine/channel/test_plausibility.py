from typing import Any

import pytest

from inferd.engine.channel.plausibility import (
    ProtocolViolationError,
    check_counts,
    check_usage,
    logprob_bytes,
)
from inferd.limits.engine import JOB_ITEM_BYTES
from inferd.wire.responses import Alternative, Logprob, Usage
from tests.cases import each_case


@pytest.mark.parametrize("counts", [(-1,), (2, 1), (2**53 + 1,)])
def test_what_is_no_count_or_less_than_its_part_is_refused(counts):
    with pytest.raises(ProtocolViolationError, match="a count of"):
        check_counts(*counts)


@each_case("counts", [(), (0,), (1, 2), (2, 2, 2**53)])
def test_counts_may_be_equal_or_grow(counts):
    check_counts(*counts)


@each_case("usage", [Usage(1, 1, 2), Usage(1, -1), Usage(1, 1, 0, 1, 2), Usage(-1, 0)])
def test_parts_of_what_was_used_are_no_more_than_the_whole(usage):
    with pytest.raises(ProtocolViolationError):
        check_usage(usage)
    check_usage(Usage(3, 2, 1, 2, 2))


def test_a_token_with_alternatives_takes_as_much_as_all_of_them():
    fields: dict[str, Any] = {"token": "ab", "id": 1, "bytes": [97, 98], "logprob": 0.0}
    told = Logprob(**fields, top_logprobs=[Alternative(**fields)])
    assert logprob_bytes(told) == 2 * (JOB_ITEM_BYTES + 4)
