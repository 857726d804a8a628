from typing import Any

from hypothesis import given, strategies as st

from inferd.limits.log import (
    LOG_BURST_LINES,
    LOG_LINES_PER_S,
    LOG_SERVED_BURST_LINES,
    REFUSAL_LOG_INTERVAL_S,
)
from inferd.limits.server import MAX_FAIR_SHARE_USERS
from inferd.server.telemetry.log_throttle import LogQuota, TokenBucket


def refusal(user: int = 1, **fields: Any) -> dict[str, Any]:
    return {"event": "request_refused", "code": "a", "peer_uid": user, **fields}


@given(st.lists(st.floats(0, 10), max_size=300), st.integers(1, 20), st.floats(0, 5))
def test_a_bucket_gives_no_more_than_its_burst_and_its_rate(pauses, burst, per_s):
    bucket = TokenBucket(burst, per_s, 0)
    now, n_taken = 0.0, 0
    for pause in pauses:
        now += pause
        n_taken += bucket.take(now)
        assert n_taken <= burst + per_s * now + 1e-6


def test_a_flooding_user_is_throttled_and_others_are_logged():
    quota = LogQuota()
    written = [quota.allows(refusal(), 0) for _ in range(10 * LOG_BURST_LINES)]
    assert sum(written) == LOG_BURST_LINES + 1  # and the first that was too much
    assert quota.allows(refusal(2), 0)
    event = refusal()
    later = REFUSAL_LOG_INTERVAL_S
    n_new = int(later * LOG_LINES_PER_S)
    assert all(quota.allows(refusal(), later) for _ in range(n_new))
    assert quota.allows(event, later)
    assert event["times"] == 9 * LOG_BURST_LINES


def test_the_first_event_of_each_kind_is_logged_however_many_came_before():
    quota = LogQuota()
    for _ in range(2 * LOG_BURST_LINES):
        quota.allows(refusal(), 0)
    others: list[dict[str, Any]] = [
        {"code": "b"},
        {"event": "client.gone"},
        {"socket": "s"},
    ]
    for other in others:
        assert quota.allows(refusal(**other), 0)
        assert not quota.allows(refusal(**other), 0)


def test_finished_requests_have_a_quota_of_their_own():
    quota = LogQuota()
    for _ in range(2 * LOG_BURST_LINES):
        quota.allows(refusal(), 0)
    done = [
        quota.allows(refusal(event="v2_request_done"), 0)
        for _ in range(LOG_SERVED_BURST_LINES)
    ]
    assert all(done)


def test_events_about_no_user_are_always_logged():
    quota = LogQuota()
    assert all(quota.allows({"event": "daemon.ready"}, 0) for _ in range(10_000))


def test_all_identities_of_one_owner_count_together():
    quota = LogQuota()
    n_written = sum(
        quota.allows(refusal(user, peer_owner=7), 0) for user in range(5000)
    )
    assert n_written == LOG_BURST_LINES + 1


def test_the_oldest_user_is_forgotten():
    quota = LogQuota()
    for user in range(3 * MAX_FAIR_SHARE_USERS):
        quota.allows(refusal(user), 0)
    assert len(quota._buckets) <= 2 * MAX_FAIR_SHARE_USERS
