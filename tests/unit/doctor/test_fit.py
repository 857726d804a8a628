import pytest
from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import AdmissionSettings, Config, MemorySettings
from inferd.doctor.fit import Fit, fit_alone
from inferd.doctor.memory import Forecast
from inferd.memory.plan import (
    MIB,
    InsufficientMemoryError,
    LinearSize,
    plan_memory,
)
from tests.fakes.memory_coordinator import DEMAND
from tests.model.tiny import write_tiny_model

BIG = replace(DEMAND, weights=100 * MIB, cache=LinearSize(per_slot=50 * MIB), own=0)


def config(n_mib: int) -> Config:
    return Config(
        memory=MemorySettings(budget=n_mib * MIB),
        admission=AdmissionSettings(),
    )


@pytest.fixture
def demanded(monkeypatch):
    """Have the worker demand this."""

    def forecast(workers, budget, _limits):
        [(_, settings)] = workers
        try:
            plan = plan_memory({settings.name: BIG}, replace(budget, n_slots=2))
        except InsufficientMemoryError as error:
            return Forecast({settings.name: BIG}, refusal=str(error))
        return Forecast({settings.name: BIG}, plan=plan)

    monkeypatch.setattr("inferd.doctor.fit.forecast", forecast)


def fit(n_mib: int) -> Fit:
    return fit_alone(LlamaCppSettings(name="m", model="/m.gguf"), config(n_mib))


def test_what_the_daemon_would_plan_is_told(demanded):
    assert fit(200) == Fit(
        fits=True,
        n_slots=2,
        n_ctx=BIG.n_ctx,
        needed_bytes=200 * MIB,
        budget_bytes=200 * MIB,
    )
    reduced = fit(199)
    assert (reduced.fits, reduced.n_slots, reduced.is_reduced) == (True, 1, True)


def test_what_does_not_fit_is_told_with_the_numbers(demanded):
    found = fit(149)
    assert not found.fits
    assert "the budget is 149 MiB" in found.reason


def test_a_reference_that_cannot_be_used_is_told():
    found = fit_alone(LlamaCppSettings(name="m", model="embedded:no"), config(1))
    assert (found.fits, "embedded:no: no such model" in found.reason) == (False, True)


def test_a_kind_without_a_part_in_the_plan_fits():
    assert fit_alone(MockSettings(name="m"), config(1)).fits


@pytest.mark.slow
@pytest.mark.model
def test_a_worker_is_asked(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf")
    settings = LlamaCppSettings(name="m", model=str(path), sha256="0" * 64)
    found = fit_alone(settings, config(10_000))
    assert (found.fits, found.n_ctx, found.is_reduced) == (True, 512, False)
    assert 0 < found.needed_bytes < 10_000 * MIB
    path.write_bytes(b"GGUF")
    refused = fit_alone(settings, config(10_000))
    assert (refused.fits, "amid its header" in refused.reason) == (False, True)
