import pytest
from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import ConfigError, LimitSettings
from inferd.engine.demand import DemandUnknownError
from inferd.engine.ladder import ChosenModels, choose_models
from inferd.memory.plan import MIB, MemoryBudget
from tests.fakes.memory_coordinator import DEMAND

SIZES = {"/large.gguf": 400, "/small.gguf": 50, "/embed.gguf": 100}
"""MiB of weights by model."""
AUTO = LlamaCppSettings(
    name="chat", model="auto", ladder=("/large.gguf", "/small.gguf"), n_ctx=4096
)
EMBED = LlamaCppSettings(name="embed", model="/embed.gguf", sha256="0" * 64)


@pytest.fixture
def asked(monkeypatch):
    """Have workers demand what ``SIZES`` has; give the settings that they got."""
    found = []

    def predict_demand(_program, settings, _n_slots, _limits):
        found.append(settings)
        if settings.model not in SIZES:
            raise DemandUnknownError(f"model file not found: {settings.model}")
        return replace(DEMAND, weights=SIZES[settings.model] * MIB, own=0)

    monkeypatch.setattr("inferd.engine.ladder.predict_demand", predict_demand)
    return found


def choose(n_mib: int, *backends) -> ChosenModels:
    budget = MemoryBudget(n_bytes=n_mib * MIB, n_slots=1, slots_are_set=False)
    return choose_models(backends, budget, LimitSettings())


def test_without_a_ladder_nothing_is_asked(asked):
    assert choose(0, EMBED, MockSettings(name="m")) == ChosenModels(
        (EMBED, MockSettings(name="m")), {}
    )
    assert asked == []


@pytest.mark.parametrize(
    ("n_mib", "model"), [(1000, "/large.gguf"), (480, "/small.gguf")]
)
def test_the_chosen_model_replaces_the_ladder_beside_the_others(n_mib, model, asked):
    backends, choices = choose(n_mib, EMBED, AUTO, MockSettings(name="m"))
    assert backends == (
        EMBED,
        replace(AUTO, model=model, ladder=()),
        MockSettings(name="m"),
    )
    assert choices["chat"].model == model
    assert [each.model for each in asked] == [*AUTO.ladder, "/embed.gguf"]
    assert asked[0].n_ctx == 4096
    assert asked[2].sha256 is None  # hashing takes longer than asking


def test_a_ladder_without_a_model_that_fits_is_refused(asked):
    with pytest.raises(ConfigError, match="no model of its ladder fits; /small.gguf"):
        choose(20, AUTO)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/no.gguf", "backend chat: model file not found: /no.gguf"),
        ("embedded:no", "embedded:no: no such model"),
    ],
)
def test_a_model_that_is_not_there_is_no_reason_to_take_a_smaller_one(
    model, reason, asked
):
    with pytest.raises(ConfigError, match=reason):
        choose(1000, replace(AUTO, ladder=(model, "/small.gguf")))
