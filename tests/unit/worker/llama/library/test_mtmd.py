import ctypes

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.library import mtmd
from inferd.worker.llama.library.mtmd import MtmdLog, captured_log, load_mtmd
from tests.unit.worker.llama.showing import ask, picture

pytestmark = pytest.mark.model

DEBUG, INFO, ERROR = 1, 2, 4


def test_a_build_without_the_library_says_how_to_make_one(monkeypatch):
    def missing(name):
        raise FileNotFoundError(name)

    monkeypatch.setattr(mtmd, "import_module", missing)
    with pytest.raises(LoadError, match="libmtmd does not load .*; run: make setup"):
        load_mtmd()


def test_a_library_of_another_release_is_refused(monkeypatch):
    binding = load_mtmd()

    class Shorter(ctypes.Structure):
        _fields_ = (("use_gpu", ctypes.c_bool),)  # type: ignore[mutable-override]

    monkeypatch.setattr(binding, "mtmd_context_params", Shorter)
    with pytest.raises(LoadError, match="mtmd_context_params has .* run: make setup"):
        load_mtmd()


def said(words: MtmdLog, level: int, text: bytes) -> None:
    words.callback(level, text, None)


def test_all_lines_are_logged_while_verbose_and_errors_always(capfd):
    with captured_log() as words:
        said(words, INFO, b"loading\n")
    said(words, INFO, b"looking\n")
    said(words, ERROR, b"no room\n")
    assert capfd.readouterr().err == "loading\nno room\n"


def test_the_first_error_is_kept_in_one_short_line():
    with captured_log() as words:
        assert words.first_error == ""
        said(words, ERROR, b"f: " + b"x" * 500 + b"\nmore\n")
        said(words, ERROR, b"for that reason\n")
    assert words.first_error == "f: " + "x" * 197
    with captured_log() as words:
        assert words.first_error == ""


def test_nothing_is_said_of_pictures(seer, capfd):
    ask(seer, "*", picture(80), cache="off")
    assert "clip" not in capfd.readouterr().err
