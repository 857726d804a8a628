import sys

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.load import locate_model
from inferd.config.settings import ConfigError
from inferd.installation import (
    CHECKOUT,
    EXTRAS,
    RELEASE,
    command_to_add,
    mending_command,
    missing_module,
    service_command,
    service_prefix,
)


@pytest.fixture
def without(monkeypatch):
    """Hide a module, as if its extra were not installed."""

    def hide(name: str) -> None:
        found = {"name": name}
        monkeypatch.setattr(
            "inferd.installation.find_spec",
            lambda each: None if each == found["name"] else object(),
        )

    return hide


def test_each_installation_is_told_its_own_command(tmp_path):
    nothing = tmp_path / "Makefile"
    python = sys.executable
    assert command_to_add("llama", "/usr/lib/inferd") == (
        "sudo apt install --reinstall inferd"
    )
    assert command_to_add("llama", "/opt/inferd/current") == "sudo make install"
    assert command_to_add("llama", "/home/a/.venv", CHECKOUT) == "make setup"
    assert command_to_add("llama", "/home/a/venv", nothing) == (
        f"{python} -m pip install 'inferd[llama]'"
    )
    assert mending_command("/usr/lib/inferd-other", nothing) == ""


def test_every_extra_that_a_kind_needs_is_known_and_installed_here():
    needed = {kind.extra for kind in KINDS.kinds if kind.extra}
    assert needed == EXTRAS.keys()
    assert [missing_module(extra) for extra in needed] == ["" for _ in needed]


def test_a_kind_without_its_engine_is_refused_before_its_model_is_looked_for(
    without, tmp_path
):
    without("llama_cpp")
    backend = LlamaCppSettings(name="chat", model=str(tmp_path / "none.gguf"))
    with pytest.raises(ConfigError) as refused:
        locate_model(backend)
    assert str(refused.value) == (
        "backend chat: kind llamacpp needs inferd's extra llama, and llama_cpp is not "
        "installed; run: make setup"
    )


def test_the_service_is_that_of_the_package_where_there_is_one(tmp_path):
    assert service_prefix(tmp_path / "none") == RELEASE
    assert service_command(tmp_path / "none") == "sudo make install"
    assert service_prefix(tmp_path) == tmp_path
