from dataclasses import fields
from importlib.util import find_spec

import pytest

from inferd.config.kinds.kind import (
    BackendKind,
    DoctorPolicy,
    InDaemon,
    InWorker,
    MemoryPolicy,
    Sandbox,
)
from inferd.config.kinds.llamacpp import LLAMACPP, LlamaCppSettings
from inferd.config.kinds.mock import MOCK, MockSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.whispercpp import WHISPERCPP, WhisperCppSettings
from inferd.config.settings import BackendSettings, ConfigError
from tests.cases import each_case
from tests.fakes.kinds.records import ECHO, EXTENDED, EchoSettings

RECORDS = [kind for kind in EXTENDED.kinds if kind not in KINDS.kinds] + [*KINDS.kinds]


def test_a_kind_is_looked_up_by_the_type_of_its_settings():
    assert KINDS.of(MockSettings(name="m")) is MOCK
    assert KINDS.of(LlamaCppSettings(name="c")) is LLAMACPP
    assert KINDS.of(WhisperCppSettings(name="w")) is WHISPERCPP


def test_a_kind_that_is_not_registered_is_not_found():
    settings = EchoSettings(name="e", greeting="hi")
    with pytest.raises(KeyError):
        KINDS.of(settings)
    assert EXTENDED.of(settings) is ECHO


def test_names_of_kinds_differ_and_a_registry_with_more_keeps_the_default():
    names = [kind.name for kind in EXTENDED.kinds]
    assert names == [
        *("llamacpp", "whispercpp", "openai", "ollama", "anthropic", "gemini"),
        *("whisper-server", "inferd", "mock", "echo", "shout"),
    ]
    assert EXTENDED.default == KINDS.default == LlamaCppSettings(name="chat")


@each_case("kind", RECORDS, ids=lambda kind: kind.name)
def test_what_serves_a_kind_can_be_started(kind: BackendKind[BackendSettings]):
    match kind.served_by:
        case InWorker(program=program):
            # a package is run by its ``__main__``
            spec = find_spec(program)
            assert spec is not None
            if spec.submodule_search_locations is not None:
                assert find_spec(f"{program}.__main__") is not None
        case InDaemon(module=module):
            assert find_spec(module) is not None


@each_case("record", [BackendKind, InWorker, InDaemon, DoctorPolicy])
def test_a_record_that_lacks_a_part_cannot_be_made(record):
    parts = {field.name: None for field in fields(record)}
    record(**parts)
    for missing in parts:
        rest = {name: None for name in parts if name != missing}
        with pytest.raises(TypeError, match=f"'{missing}'"):
            record(**rest)


def test_only_backends_whose_kind_demands_memory_are_waited_for():
    backends: list[BackendSettings] = [
        LlamaCppSettings(name="c"),
        WhisperCppSettings(name="w"),
        MockSettings(name="m"),
        EchoSettings(name="e", greeting="hi"),
    ]
    assert EXTENDED.demanding_memory(backends) == ["c", "w"]
    assert ECHO.memory(EchoSettings(name="e", greeting="hi")) is MemoryPolicy.NONE


@pytest.mark.parametrize(
    ("n_gpu_layers", "sandbox"),
    [(0, Sandbox.CPU), (-1, Sandbox.ACCELERATED), ("auto", Sandbox.ACCELERATED)],
)
def test_layers_on_an_accelerator_need_its_sandbox(n_gpu_layers, sandbox):
    settings = LlamaCppSettings(name="c", n_gpu_layers=n_gpu_layers)
    assert isinstance(LLAMACPP.served_by, InWorker)
    assert LLAMACPP.served_by.sandbox(settings) is sandbox


def test_a_ladder_is_settings_by_model_and_the_others_have_none():
    auto = LlamaCppSettings(name="c", model="auto", ladder=("/a.gguf", "b"), n_ctx=64)
    assert LLAMACPP.rungs(auto) == [
        LlamaCppSettings(name="c", model="/a.gguf", n_ctx=64),
        LlamaCppSettings(name="c", model="b", n_ctx=64),
    ]
    for kind, settings in [
        (LLAMACPP, LlamaCppSettings(name="c", model="/auto")),
        (MOCK, MockSettings(name="m")),
        (WHISPERCPP, WhisperCppSettings(name="w", model="auto")),
    ]:
        assert [*kind.rungs(settings)] == []


def test_a_model_that_was_not_chosen_yet_has_no_place():
    def find(_: str) -> None:
        raise AssertionError("nothing to find")

    with pytest.raises(ConfigError, match="'auto' needs a ladder, and is chosen when"):
        LLAMACPP.locate(LlamaCppSettings(name="c", model="auto"), find)
