from inferd.cli.fleet.drain import wait_idle
from inferd.fleet.probe import Condition, MemberState
from tests.cases import each_case

GONE = {"is_gone": True, "reason": "/health: refused"}
SILENT = {"reason": "/health: no answer within 5 s"}
STILL = "has requests still"
UNKNOWN = "does not tell whether it has requests: "


@each_case(
    ("answers", "timeout_s", "doubt", "n_looks"),
    [
        ([0, 0], 10, "", 2),
        ([2, 1, 0, 1, 0, 0], 10, "", 6),
        ([1, GONE, GONE], 10, "", 3),
        ([1] * 99, 3, STILL, 4),
        ([1, SILENT, SILENT, 0, 0], 10, "", 5),
        ([SILENT] * 99, 3, UNKNOWN + SILENT["reason"], 4),
        ([{}] * 99, 1, UNKNOWN + "/metrics: no number of requests", 2),
        ([{**GONE, "running": 1}] * 99, 1, STILL, 2),
    ],
)
def test_a_member_is_drained_once_it_has_no_requests_twice(
    answers, timeout_s, doubt, n_looks
):
    left = list(answers)

    def look():
        told = left.pop(0)
        return MemberState(
            name="a",
            url="",
            condition=Condition.READY,
            drained=True,
            **({"running": told} if isinstance(told, int) else told),
        )

    assert wait_idle(look, timeout_s, lambda _: None) == doubt
    assert len(answers) - len(left) == n_looks
