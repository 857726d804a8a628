import gc
import subprocess
import sys
from importlib import import_module

import pytest

from inferd.cli.importing import without_collections, without_package


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
