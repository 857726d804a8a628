from inferd.cli.fleet.drain import wait_idle
from inferd.fleet.probe import Condition, MemberState
from tests.cases import each_case


@each_case(
    ("running", "timeout_s", "is_idle", "n_looks"),
    [
        ([0, 0], 10, True, 2),
        ([2, 1, 0, 1, 0, 0], 10, True, 6),
        ([None, None], 10, True, 2),  # it has gone
        ([1] * 99, 3, False, 4),
    ],
)
def test_a_member_is_drained_once_it_has_no_requests_twice(
    running, timeout_s, is_idle, n_looks
):
    left = list(running)

    def look():
        return MemberState(
            name="a",
            url="",
            condition=Condition.READY,
            drained=True,
            running=left.pop(0),
        )

    assert wait_idle(look, timeout_s, lambda _: None) is is_idle
    assert len(running) - len(left) == n_looks
