import gc
import subprocess
import sys
from importlib import import_module

import pytest

from inferd.service.importing import (
    empty_module,
    without_collections,
    without_package,
)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_nothing_is_collected_inside_and_as_before_afterwards(was_enabled):
    is_enabled = gc.isenabled()
    try:
        (gc.enable if was_enabled else gc.disable)()
        with pytest.raises(ImportError), without_collections():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == was_enabled
    finally:
        (gc.enable if is_enabled else gc.disable)()


def test_a_hidden_package_cannot_be_imported_until_afterwards(tmp_path, monkeypatch):
    (tmp_path / "decoration").mkdir()
    (tmp_path / "decoration" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with without_package("decoration"), pytest.raises(ImportError):
        import_module("decoration")
    decoration = import_module("decoration")
    with without_package("decoration"):
        assert sys.modules["decoration"] is decoration
    del sys.modules["decoration"]


def test_the_daemon_starts_without_rich(tmp_path):
    config = tmp_path / "inferd.toml"
    config.write_text("no = true\n")  # it is refused after the import
    words = ("-m", "inferd", "serve", "--config", str(config))
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "structlog.dev" in result.stderr
    assert "rich.console" not in result.stderr


def test_a_module_is_empty_until_afterwards(tmp_path, monkeypatch):
    (tmp_path / "furnished").mkdir()
    (tmp_path / "furnished" / "__init__.py").write_text("from .room import *\n")
    (tmp_path / "furnished" / "room.py").write_text("CHAIR = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with empty_module("furnished.room"):
        assert not hasattr(import_module("furnished"), "CHAIR")
    room = import_module("furnished.room")
    with empty_module("furnished.room"):
        assert sys.modules["furnished.room"] is room
    del sys.modules["furnished"], sys.modules["furnished.room"]


@pytest.mark.model
@pytest.mark.slow
def test_a_worker_imports_of_the_binding_what_it_calls():
    result = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            "import inferd.worker.llama.backend",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "llama_cpp.llama_cpp" in result.stderr
    for unused in ("llama_cpp.llama_chat_format", "diskcache", "multiprocessing"):
        assert f" {unused}\n" not in result.stderr
