from collections.abc import Sequence
from pathlib import Path

import pytest

from inferd.config.kinds.registry import KINDS
from inferd.config.settings import Config, ModelsSettings
from inferd.doctor.check import Finding, Verdict
from inferd.doctor.memory import Forecast
from inferd.doctor.served import MemoryBeside, served_checks
from inferd.engine.demand import DemandUnknownError
from inferd.memory.plan import MemoryBudget
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

    monkeypatch.setattr("inferd.doctor.memory.predict_demand", fail)
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
