import errno
import re

import pytest

from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.worker.backend import LoadError
from inferd.worker.whisper.model.file import WhisperFile, open_file
from tests.unit.worker.whisper.models import SMALL


def test_a_model_is_opened_and_its_header_read(small_model):
    file = open_file(WhisperCppSettings(name="w", model=str(small_model)))
    assert file.header == SMALL
    assert len(file.fds) == 1
    file.refuse_if_changed()


def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path):
    path = tmp_path / "notes.bin"
    path.write_bytes(b"milk, bread, butter")
    with pytest.raises(LoadError, match=re.escape(str(path))) as caught:
        WhisperFile(path)
    assert caught.value.reason == "model file: not a whisper.cpp model file"


def test_a_file_for_another_kind_of_backend_is_told_so(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    reason = 'not a whisper.cpp model file but a GGUF file, for kind = "llamacpp"'
    with pytest.raises(LoadError, match=reason):
        WhisperFile(path)


def test_a_file_that_cannot_be_read_is_refused_in_one_line(small_model, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("inferd.worker.whisper.model.file.read_header", fail)
    with pytest.raises(LoadError) as caught:
        WhisperFile(small_model)
    assert caught.value.reason == "model file: Input/output error"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LoadError, match=f"not found: {tmp_path / 'm.bin'}"):
        WhisperFile(tmp_path / "m.bin")
