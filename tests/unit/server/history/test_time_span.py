from statistics import quantiles

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from inferd import surfaces
from inferd.backend.caller import Caller
from inferd.backend.interface import CacheReuse
from inferd.server.history.record import NO_NOTES, Life
from inferd.server.history.steps import Steps
from inferd.server.history.time_span import TimeSpan, busy_s, percentiles, tokens_in
from inferd.server.identity.peer import Peer

WINDOW = TimeSpan(100.0, 160.0)
LIFE = Life(
    number=1,
    request_id="r",
    peer=Peer(pid=17, uid=1000, gid=100),
    caller=Caller(1000),
    surface=surfaces.INFER,
    model=None,
    backend="chat",
    arrived_at=90.0,
    arrived_ns=0,
    n_bytes=7,
    now=130.0,
    outcome="end",
    steps=Steps(left_at=130.0),
    started_at=90.0,
    notes=NO_NOTES,
    n_pauses=0,
    paused_s=0.0,
    input_tokens=5,
    is_estimate=False,
    n_tokens=40,
    n_first_tokens=1,
    first_at=110.0,
    reuse=CacheReuse(),
    audio_ms=None,
)
RUNNING = replace(LIFE, outcome=None, now=160.0, steps=Steps())


def test_only_what_is_within_the_span_counts():
    assert busy_s(LIFE, WINDOW) == 30
    assert tokens_in(LIFE, WINDOW) == 40
    assert tokens_in(LIFE, TimeSpan(120.0, 160.0)) == 20
    assert busy_s(LIFE, TimeSpan(130.0, 160.0)) == 0
    assert busy_s(RUNNING, WINDOW) == 60
    assert tokens_in(RUNNING, TimeSpan(135.0, 160.0)) == 20


def test_pauses_do_not_count_as_running():
    assert busy_s(replace(LIFE, paused_s=20.0), WINDOW) == 15
    assert busy_s(replace(LIFE, paused_s=90.0), WINDOW) == 0


def test_what_did_not_run_counts_nothing():
    refused = replace(LIFE, started_at=None, first_at=None)
    assert (busy_s(refused, WINDOW), tokens_in(refused, WINDOW)) == (0, 0)
    at_once = replace(LIFE, first_at=130.0, started_at=130.0)
    assert (busy_s(at_once, WINDOW), tokens_in(at_once, WINDOW)) == (0, 40)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=40))
def test_percentiles_are_times_that_occurred_in_order(times):
    found = percentiles(times)
    assert found is not UNSET
    assert found.n == len(times)
    assert found.p50 <= found.p95 <= found.p99
    assert {found.p50, found.p99} <= {round(each * 1000, 3) for each in times}


def test_percentiles_of_a_hundred_are_what_one_expects():
    times = [n / 1000 for n in range(100, 0, -1)]
    found = percentiles(times)
    assert found is not UNSET
    assert (found.p50, found.p95, found.p99) == (50, 95, 99)
    assert found.p50 == pytest.approx(quantiles(times, n=100)[49] * 1000, rel=0.02)
    assert percentiles([]) is UNSET
