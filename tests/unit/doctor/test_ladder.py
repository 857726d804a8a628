import pytest
from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.settings import ConfigError, LimitSettings
from inferd.doctor.check import Verdict
from inferd.doctor.ladder import Ladders
from inferd.engine.ladder import ChosenModels
from inferd.memory.ladder import RungChoice
from inferd.memory.plan import MemoryBudget

AUTO = LlamaCppSettings(name="chat", model="auto", ladder=("/a.gguf", "/b.gguf"))
MOCK = MockSettings(name="m")
CHOSEN = replace(AUTO, model="/b.gguf", ladder=())


@pytest.fixture
def choosing(monkeypatch):
    """Have this be chosen, or raised; count how often it is asked for."""
    calls = []

    def use(outcome: ChosenModels | ConfigError) -> None:
        def choose_models(*_: object) -> ChosenModels:
            calls.append(1)
            if isinstance(outcome, ConfigError):
                raise outcome
            return outcome

        monkeypatch.setattr("inferd.doctor.ladder.choose_models", choose_models)

    calls.clear()
    return use, calls


def ladders(*backends) -> Ladders:
    budget = MemoryBudget(n_bytes=0, n_slots=1, slots_are_set=False)
    return Ladders(backends, budget, LimitSettings(), KINDS)


def test_the_choice_is_a_finding_and_the_other_checks_get_its_model(choosing):
    use, calls = choosing
    choice = RungChoice("/b.gguf", 1, 2, "/a.gguf needs 9 MiB at least")
    use(ChosenModels((CHOSEN, MOCK), {"chat": choice}))
    found = ladders(AUTO, MOCK)
    [check] = found.checks()
    assert (check.name, calls) == ("ladder[chat]", [])
    finding = check.run()
    assert finding.verdict is Verdict.OK
    assert finding.detail.startswith(
        "/b.gguf, 2 of 2 in its ladder: /a.gguf needs 9 MiB at least; "
    )
    assert found.backends == (CHOSEN, MOCK)
    assert calls == [1]


def test_a_ladder_that_does_not_fit_is_a_failure_and_the_others_are_checked(choosing):
    use, _ = choosing
    use(ConfigError("backend chat: no model of its ladder fits"))
    found = ladders(AUTO, MOCK)
    [check] = found.checks()
    finding = check.run()
    assert (finding.verdict, finding.detail) == (
        Verdict.FAILED,
        "backend chat: no model of its ladder fits",
    )
    assert "add a smaller model to the end" in finding.hint
    assert found.backends == (MOCK,)


def test_without_ladders_there_is_nothing_to_check(choosing):
    use, _ = choosing
    use(ChosenModels((MOCK,), {}))
    assert list(ladders(MOCK).checks()) == []
