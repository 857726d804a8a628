from inferd.models.pull.stall import StallWatch


def test_enough_bytes_in_each_period_are_no_stall():
    watch = StallWatch(100.0, period_s=10.0, least_bytes=50)
    assert not any(watch.is_stalled(100.0 + n, 5) for n in range(60))


def test_one_slow_period_is_a_stall_whatever_came_before():
    watch = StallWatch(0.0, period_s=10.0, least_bytes=50)
    assert not watch.is_stalled(10.0, 1_000_000)
    assert not watch.is_stalled(19.9, 49)
    assert watch.is_stalled(20.0, 0)


def test_a_period_begins_anew_after_each():
    watch = StallWatch(0.0, period_s=10.0, least_bytes=50)
    assert watch.is_stalled(30.0, 0)
    assert not watch.is_stalled(39.9, 0)
    assert not watch.is_stalled(40.0, 50)
