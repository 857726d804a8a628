import os

from inferd.config.settings import AdmissionSettings, Config, MemorySettings
from inferd.limits.admission import MAX_ACTIVE_DEFAULT_CAP
from inferd.server.capacity import make_admission, max_active_requests, memory_budget


def test_as_many_run_at_once_as_are_configured_or_as_there_are_cores():
    configured = Config(admission=AdmissionSettings(max_active=17))
    assert max_active_requests(configured) == 17
    cores = len(os.sched_getaffinity(0))
    assert max_active_requests(Config()) == min(cores, MAX_ACTIVE_DEFAULT_CAP)


def test_admission_has_the_configured_limits():
    settings = AdmissionSettings(
        max_active=1, max_queued=2, max_queued_tokens=3, max_queued_bytes=4
    )
    gate = make_admission(Config(admission=settings))
    bounds = [gate._max_active]
    there = gate._backlog
    bounds += [each.limit for each in (there.requests, there.tokens, there.bytes)]
    assert bounds == [1, 2, 3, 4]


def test_the_memory_budget_is_as_configured_or_free_memory_less_the_reserve(
    monkeypatch,
):
    monkeypatch.setattr("inferd.server.capacity.available_bytes", lambda: 1000)
    for memory, n_bytes in (
        (MemorySettings(budget=77), 77),
        (MemorySettings(reserve=300), 700),
        (MemorySettings(reserve=3000), 0),
    ):
        assert memory_budget(Config(memory=memory)).n_bytes == n_bytes


def test_slots_are_set_only_where_they_are_configured():
    budget = memory_budget(Config())
    assert (budget.n_slots, budget.slots_are_set) == (
        max_active_requests(Config()),
        False,
    )
    config = Config(admission=AdmissionSettings(max_active=3))
    budget = memory_budget(config)
    assert (budget.n_slots, budget.slots_are_set) == (3, True)
