from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.settings import Config, ModelsSettings
from inferd.doctor.check import Finding, Verdict
from inferd.doctor.memory import Forecast
from inferd.doctor.served import MemoryBeside, served_checks
from inferd.engine.demand import DemandUnknownError
from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.plan import (
    InsufficientMemoryError,
    LinearSize,
    MemoryBudget,
    plan_memory,
)
from tests.fakes.memory_coordinator import DEMAND
from tests.unit.models.store.stores import add_model, open_store

NAME = "team/tiny:q4"
CONFIG = Config(models=ModelsSettings(serve=True))
NOTHING_LOADED = MemoryBeside(
    Forecast(), MemoryBudget(n_bytes=2**30, n_slots=1, slots_are_set=False)
)


@pytest.fixture
def path(tmp_path):
    store = open_store(tmp_path / "models")
    add_model(store, NAME, b"GGUF")
    return store.directory.path


def diagnose(stores: Sequence[Path]) -> dict[str, Finding]:
    checks = served_checks(CONFIG, stores, lambda: NOTHING_LOADED, KINDS)
    return {check.name: check.run() for check in checks}


@pytest.mark.parametrize("is_system", [False, True])
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_model_is_removed_only_if_its_file_is_broken(
    path, monkeypatch, is_system, is_broken
):
    def fail(*_: object) -> None:
        raise DemandUnknownError("cannot be read", is_broken_file=is_broken)

    monkeypatch.setattr("inferd.doctor.served.predict_demand", fail)
    if is_system:
        monkeypatch.setattr("inferd.doctor.backend.SYSTEM_MODELS", path)
    found = diagnose([path])[f"served[{NAME}]"]
    assert (found.verdict, found.detail) == (
        Verdict.WARNING,
        "not served: cannot be read",
    )
    sudo, system = ("sudo ", " --system") if is_system else ("", "")
    remove = f"{sudo}inferd model remove{system} {NAME}; then bring it again"
    verify = f"{sudo}inferd model verify{system} {NAME}"
    assert found.hint == (remove if is_broken else verify)


def test_models_that_cannot_be_used_are_listed_where_they_are(path, monkeypatch):
    (path / "manifests" / "torn.json").write_text("{")
    assert diagnose([path])["served[torn]"].hint == "inferd model list"
    monkeypatch.setattr("inferd.doctor.served.SYSTEM_MODELS", path)
    assert diagnose([path])["served[torn]"].hint == "inferd model list --system"


def test_a_store_that_is_not_trusted_is_told_beside_the_models_of_others(
    path, tmp_path
):
    others = open_store(tmp_path / "others").directory.path
    others.chmod(0o777)
    found = diagnose([others, path])
    assert found["served"].verdict is Verdict.WARNING
    assert found["served"].detail.startswith("1 models of the store")
    assert "cannot be trusted" in found["served"].detail
    assert f"served[{NAME}]" in found


@pytest.mark.parametrize("n_left", [100, 3_100, 6_000])
@pytest.mark.parametrize("n_slots", [2, 4])
async def test_a_model_fits_if_the_daemon_would_have_room_for_it(
    path, monkeypatch, n_slots, n_left
):
    first = replace(DEMAND, n_ctx=8192, cache=LinearSize(per_token=1))
    demand = replace(first, n_ctx=1024, is_set=True)
    monkeypatch.setattr("inferd.doctor.served.predict_demand", lambda *_: demand)
    n_bytes = first.need(n_slots, first.n_ctx).total + n_left
    budget = MemoryBudget(n_bytes=n_bytes, n_slots=4, slots_are_set=False)
    config = replace(CONFIG, backend=(MockSettings(name="first"),))
    known = Forecast(plan=plan_memory({"first": first}, budget))
    memory = MemoryBeside(known, budget)
    expected: tuple[Verdict, int | str]
    [found] = [
        each.run()
        for each in served_checks(config, [path], lambda: memory, KINDS)
        if each.name == f"served[{NAME}]"
    ]
    daemon = MemoryCoordinator(["first"], budget)
    assert (await daemon.request_share("first", first)).n_slots == n_slots
    daemon.expect(NAME, ["first"])
    try:
        share = await daemon.request_share(NAME, demand)
        expected = Verdict.OK, share.n_slots
    except InsufficientMemoryError as error:
        expected = Verdict.WARNING, f"not served: {error}"
    assert expected == (found.verdict, found.figures.get("n_slots", found.detail))
