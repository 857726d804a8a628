import msgspec
from hypothesis import given, settings, strategies as st

from inferd.doctor.check import (
    Check,
    Finding,
    Verdict,
    failed,
    ok,
    run_checks,
    warning,
)


def check(name, finding, *needs):
    return Check(name, lambda: finding, needs)


def verdicts(*checks):
    return [finding.verdict.value for finding in run_checks(checks)]


def test_findings_come_in_order_under_their_checks_names():
    assert list(
        run_checks([check("a", ok("fine")), check("b", failed("broken", "make setup"))])
    ) == [
        Finding(check="a", verdict=Verdict.OK, detail="fine"),
        Finding(check="b", verdict=Verdict.FAILED, detail="broken", hint="make setup"),
    ]


def test_a_finding_is_yielded_before_the_next_check_runs():
    def explode() -> Finding:
        raise AssertionError

    findings = run_checks([check("a", ok("fine")), Check("b", explode)])
    assert next(findings).check == "a"


def test_a_check_that_needs_a_failed_one_is_skipped():
    asked: list[str] = []

    def ask() -> Finding:
        asked.append("b")
        return ok("")

    _, skipped = run_checks([check("a", failed("")), Check("b", ask, ["a"])])
    assert skipped == Finding(check="b", verdict=Verdict.SKIPPED, detail="needs a")
    assert not asked


def test_a_skipped_check_is_as_good_as_a_failed_one():
    checks = [check("a", failed("")), check("b", ok(""), "a"), check("c", ok(""), "b")]
    assert verdicts(*checks) == ["failed", "skipped", "skipped"]


def test_a_warning_stops_nothing():
    assert verdicts(check("a", warning("")), check("b", ok(""), "a")) == [
        "warning",
        "ok",
    ]


def test_all_that_is_missing_is_named():
    *_, last = run_checks(
        [check("a", failed("")), check("b", failed("")), check("c", ok(""), "a", "b")]
    )
    assert last.detail == "needs a, b"


VERDICTS = st.sampled_from([ok(""), warning(""), failed("")])


@settings(max_examples=50)
@given(
    st.lists(st.tuples(VERDICTS, st.lists(st.integers(0, 5), max_size=2)), max_size=6)
)
def test_a_check_runs_exactly_when_its_needs_passed(plan):
    checks = [
        check(str(place), finding, *map(str, needs))
        for place, (finding, needs) in enumerate(plan)
    ]
    broken: set[str] = set()
    for each, finding in zip(checks, run_checks(checks), strict=True):
        assert (finding.verdict is Verdict.SKIPPED) == bool(broken & set(each.needs))
        if finding.verdict in (Verdict.SKIPPED, Verdict.FAILED):
            broken.add(each.name)


def test_a_finding_is_written_without_what_is_empty():
    assert msgspec.to_builtins(ok("fine")) == {"verdict": "ok", "detail": "fine"}


def test_what_a_check_may_not_look_at_is_its_own_failure():
    def look() -> Finding:
        raise PermissionError(13, "Permission denied", "/run/x")

    def read() -> Finding:
        raise OSError(5, "Input/output error", "/run/y")

    checks = [Check("a", look), Check("b", read), Check("c", lambda: ok("fine"))]
    a, b, c = run_checks(checks)
    assert (a.verdict, a.hint) == (Verdict.FAILED, "sudo inferd doctor")
    assert a.detail == "/run/x: Permission denied: cannot be looked at"
    assert (b.verdict, b.hint) == (Verdict.FAILED, "namei -l /run/y")
    assert c.verdict is Verdict.OK
