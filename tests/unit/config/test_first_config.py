import tomllib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from inferd.config.faults import examine_config
from inferd.config.first_config import KnownModel, MachineFacts, first_config
from inferd.config.settings import AdmissionSettings, MemorySettings
from inferd.limits.engine import MAX_RUNGS

MACHINE = MachineFacts(
    n_cores=8,
    max_active=4,
    available=2**30,
    socket_directory="/run/inferd",
    store="/srv/store",
    models=(),
)


def chat(reference: str, n_bytes: int, fault: str = "") -> KnownModel:
    return KnownModel(reference, "llamacpp", "generate", n_bytes, fault)


def backends(*models: KnownModel) -> list[dict[str, Any]]:
    text = first_config(MACHINE._replace(models=models))
    assert examine_config(text).faults == []
    found: list[dict[str, Any]] = tomllib.loads(text).get("backend", [])
    return found


def test_models_that_generate_are_a_ladder_with_the_largest_first():
    assert backends(chat("b", 5), chat("c", 9), chat("a", 5)) == [
        {
            "name": "chat",
            "kind": "llamacpp",
            "model": "auto",
            "ladder": ["c", "a", "b"],
        }
    ]
    assert backends(chat("a", 5)) == [
        {"name": "chat", "kind": "llamacpp", "model": "a"}
    ]
    [many] = backends(*(chat(f"m{n}", n) for n in range(2 * MAX_RUNGS)))
    assert len(many["ladder"]) == MAX_RUNGS


def test_each_purpose_has_a_backend_with_its_largest_model():
    found = backends(
        KnownModel("w", "whispercpp", "transcribe", 1),
        KnownModel("e1", "llamacpp", "embed", 1),
        KnownModel("e2", "llamacpp", "embed", 2),
        KnownModel("r", "llamacpp", "rerank", 1),
        KnownModel("p", "llamacpp", "project", 1),
    )
    assert [(each["name"], each["model"]) for each in found] == [
        ("embed", "e2"),
        ("rerank", "r"),
        ("speech", "w"),
    ]
    assert found[-1]["kind"] == "whispercpp"


def test_a_model_that_cannot_be_served_is_told_and_left_out():
    models = [chat("a", 5), chat("b", 9, "it is in\n2 files")]
    assert backends(*models)[0]["model"] == "a"
    text = first_config(MACHINE._replace(models=models))
    assert r"# b is left out: it is in\n2 files" in text.splitlines()
    assert backends(models[1]) == []


def test_defaults_are_comments_that_are_right():
    text = first_config(MACHINE._replace(models=[chat("a", 1)]))
    for line in (
        "# 8 cores, 1024 MiB of memory free.",
        '# directory = "/run/inferd"  # of the sockets',
        "# max_active = 4",
        f"# max_queued = {AdmissionSettings().max_queued}",
        f"# budget = {2**30 - MemorySettings().reserve}",
        f"# reserve = {MemorySettings().reserve}",
        "# serve = true",
    ):
        assert line in text.splitlines()
    opened = "\n".join(
        line.removeprefix("# ") if " = " in line else line for line in text.splitlines()
    )
    assert examine_config(opened).faults == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: "\0" not in text and text != "auto"
)
MODELS = st.builds(
    KnownModel,
    TEXTS,
    st.just("llamacpp"),
    st.sampled_from(["generate", "embed", "rerank"]),
    st.integers(0, 2**50),
    st.one_of(st.just(""), TEXTS),
)


@pytest.mark.slow
@given(st.lists(MODELS, max_size=6), TEXTS, TEXTS, TEXTS)
def test_no_name_makes_another_configuration(models, directory, store, fault):
    places = {"socket_directory": directory, "store": store, "store_faults": [fault]}
    text = first_config(MACHINE._replace(models=models, **places))
    examined = examine_config(text)
    assert examined.faults == []
    n_uses = len({model.use for model in models if not model.fault})
    assert len(tomllib.loads(text).get("backend", [])) == n_uses
