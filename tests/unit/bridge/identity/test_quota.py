import fcntl
import os
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.bridge.identity.quota import DAY_S, DailyQuota, DayUsage, add_usage
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.identity.usage_file import (
    UsageFileError,
    UsageKeeper,
    read_usage,
    usage_path,
)
from inferd.limits.bridge import MAX_TOKENS, RESERVED_RETRY_S, USAGE_S

NOON = 10 * DAY_S + DAY_S / 2


def use(quota: DailyQuota, n_tokens: int, name: str = "ada") -> None:
    quota.settle(name, quota.reserve(name, 100, 100, NOON), n_tokens, NOON)


def test_a_quota_lasts_until_midnight():
    quota = DailyQuota()
    use(quota, 99)
    assert quota.wait_s("ada", 100, NOON) == 0
    use(quota, 1)
    assert quota.wait_s("ada", 100, NOON) == DAY_S / 2
    assert quota.wait_s("bob", 100, NOON) == 0
    assert quota.wait_s("ada", 100, 11 * DAY_S) == 0


def test_what_is_reserved_is_free_again_at_the_end_of_its_request():
    quota = DailyQuota()
    n_reserved = quota.reserve("ada", 100, 500, NOON)
    assert n_reserved == 100
    assert quota.wait_s("ada", 100, NOON) == RESERVED_RETRY_S
    n_reserved = quota.lower("ada", n_reserved, 60)
    assert (n_reserved, quota.left("ada", 100, NOON)) == (60, 40)
    assert quota.lower("ada", n_reserved, 90) == 60
    quota.settle("ada", n_reserved, 30, NOON)
    assert quota.left("ada", 100, NOON) == 70


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=9),
    st.integers(1, 100),
)
def test_requests_at_once_use_no_more_than_one_could_alone(requests, limit):
    """Each uses at most what it asked to reserve."""
    quota, running = DailyQuota(), []
    for n_most, n_used in requests:
        if not quota.wait_s("ada", limit, NOON):
            reserved = quota.reserve("ada", limit, n_most, NOON)
            running.append((reserved, min(n_used, n_most), n_most))
    for reserved, used, _ in running:
        quota.settle("ada", reserved, used, NOON)
    most_over = max((n_most for *_, n_most in running), default=0)
    assert quota.usage().used.get("ada", 0) < limit + max(most_over, 1)


def test_the_names_that_used_most_are_kept():
    names = {str(n): n + 1 for n in range(MAX_TOKENS + 5)}
    kept = DailyQuota(DayUsage(10, names)).usage().used
    assert len(kept) == MAX_TOKENS
    assert min(kept.values()) == 6


async def test_what_was_used_outlives_the_bridge(tmp_path, autojump_clock):
    path = tmp_path / "state" / "usage.json"
    quota = DailyQuota(read_usage(path))
    keeper = UsageKeeper(quota, path, pytest.fail)
    use(quota, 7)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        nursery.cancel_scope.deadline = trio.current_time() + USAGE_S + 1
    assert read_usage(path).used == {"ada": 7}
    assert path.stat().st_mode & 0o777 == 0o600
    again = DailyQuota(read_usage(path))
    assert again.left("ada", 100, NOON) == 93
    path.write_text("{")
    with pytest.raises(UsageFileError):
        read_usage(path)


async def test_bridges_of_one_user_add_to_one_file_and_count_each_other(tmp_path):
    path = tmp_path / "usage.json"
    quotas = [DailyQuota(), DailyQuota()]
    keepers = [UsageKeeper(each, path, pytest.fail) for each in quotas]
    for quota, keeper, n_tokens in zip(quotas, keepers, (7, 8), strict=True):
        use(quota, n_tokens)
        await keeper.keep()
    assert read_usage(path).used == {"ada": 15}
    use(quotas[0], 1)
    await keepers[0].keep()
    assert [each.left("ada", 100, NOON) for each in quotas] == [84, 85]


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(1, 9))))
def test_what_is_kept_is_the_sum_of_what_all_bridges_count(steps):
    kept, written = DayUsage(), [DayUsage(), DayUsage()]
    quotas = [DailyQuota(), DailyQuota()]
    for each, name, n_tokens in steps:
        use(quotas[each], n_tokens, name)
        now = quotas[each].usage()
        kept = written[each] = add_usage(kept, written[each], now)
        quotas[each].add_others(now, kept)
        assert quotas[each].usage() == kept
    assert sum(kept.used.values()) == sum(n_tokens for *_, n_tokens in steps)


def test_a_file_that_is_lost_or_of_yesterday_costs_a_bridge_nothing_of_its_own():
    now = DayUsage(10, {"ada": 9})
    for kept in (DayUsage(), DayUsage(9, {"ada": 50})):
        assert add_usage(kept, DayUsage(10, {"ada": 7}), now) == now


def test_a_file_that_another_process_keeps_locked_is_written_later(tmp_path):
    told: list[str] = []
    keeper = UsageKeeper(DailyQuota(), tmp_path / "usage.json", told.append)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    keeper.write(DayUsage(1, {"ada": 1}))
    os.close(directory)
    keeper.write(DayUsage(1, {"ada": 2}))
    assert len(told) == 1
    assert read_usage(tmp_path / "usage.json").used == {"ada": 2}


def test_a_file_that_cannot_be_written_is_told_once(tmp_path):
    (tmp_path / "taken").write_text("")
    told: list[str] = []
    keeper = UsageKeeper(DailyQuota(), tmp_path / "taken" / "x", told.append)
    for n_used in (1, 2):
        keeper.write(DayUsage(1, {"ada": n_used}))
    assert len(told) == 1


def test_the_machines_bridge_keeps_it_in_its_state_directory(monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/inferd-bridge")
    assert usage_path() == Path("/var/lib/inferd-bridge/bridge-usage.json")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans())),
    st.integers(1, 20),
    st.integers(1, 9),
)
def test_nobody_holds_more_than_its_share_nor_all_more_than_the_limit(
    steps, limit, least
):
    shared, held = SharedLimit(limit, least=least), {"a": 0, "b": 0, "c": 0}
    for name, n, gives_back in steps:
        if gives_back and held[name]:
            shared.give_back(name)
            held[name] -= 1
        elif shared.take(name, n):
            held[name] += n
        assert shared.total == sum(held.values()) <= limit
        assert max(held.values()) <= max(least, (limit + 1) // 2)
