import importlib
import sys
from pathlib import Path

import pytest

from inferd.worker.sandbox.preloaded_modules import (
    PreloadedImporter,
    PreloadedModule,
    preload_modules,
)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Texts of modules, of which no file is left."""
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "beside_a_script.py").write_text("WHERE = __file__\n")
    (folder / "no_text.py").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    preload_modules(folder)
    [finder] = [each for each in sys.meta_path if isinstance(each, PreloadedImporter)]
    for each in folder.iterdir():
        each.unlink()
    yield finder
    sys.modules.pop("beside_a_script", None)


def test_what_is_beside_a_script_is_imported_without_its_file(kept, tmp_path):
    module = importlib.import_module("beside_a_script")
    assert str(tmp_path / "audit/beside_a_script.py") == module.WHERE


@pytest.mark.parametrize(
    "name",
    ["smtplib", "xml.dom.minidom", "wsgiref", "json.tool", "inferd.ipc.encoding"],
)
def test_python_s_own_library_is_there(name, kept):
    spec = kept.find_spec(name, None)
    assert spec is not None
    assert kept.is_package(name) is (name == "wsgiref")
    assert kept.get_code(name) is not None


@pytest.mark.parametrize("name", ["no_text", "numpy", "idlelib", "nowhere"])
def test_what_was_not_read_is_somebody_else_s_to_find(name, kept):
    assert kept.find_spec(name, None) is None


def test_a_package_has_its_modules_below_it():
    folder = Path("/kept/p")
    sources = {
        "p": PreloadedModule(folder / "__init__.py", ""),
        "p.m": PreloadedModule(folder / "m.py", ""),
    }
    finder = PreloadedImporter(sources)
    spec = finder.find_spec("p", None)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    assert finder.find_spec("p.m", spec.submodule_search_locations) is not None
