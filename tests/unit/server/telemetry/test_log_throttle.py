from inferd.limits.log import MAX_REFUSAL_LOG_KEYS, REFUSAL_LOG_INTERVAL_S
from inferd.server.telemetry.log_throttle import LogThrottle


def test_the_first_event_of_a_kind_is_logged_and_the_next_are_counted():
    seldom = LogThrottle()
    assert [seldom.count("a", now=now) for now in (0.0, 1.0, 2.0)] == [1, 0, 0]
    assert seldom.count("a", now=REFUSAL_LOG_INTERVAL_S) == 3
    assert seldom.count("a", now=REFUSAL_LOG_INTERVAL_S) == 0


def test_kinds_are_counted_separately():
    seldom = LogThrottle()
    assert [seldom.count("a", uid, now=0.0) for uid in (1, 2, 1)] == [1, 1, 0]


def test_a_bounded_number_of_kinds_is_remembered_and_the_oldest_is_forgotten():
    seldom = LogThrottle()
    for uid in range(MAX_REFUSAL_LOG_KEYS + 1):
        assert seldom.count(uid, now=0.0) == 1
    assert len(seldom._kinds) == MAX_REFUSAL_LOG_KEYS
    assert seldom.count(1, now=1.0) == 0
    assert seldom.count(0, now=1.0) == 1
