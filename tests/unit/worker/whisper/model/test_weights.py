import pytest

from inferd.worker.backend import LoadError
from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.model.weights import WhisperModel
from tests.unit.worker.whisper.models import SMALL, write_model


@pytest.fixture(scope="module")
def model(small_model):
    return WhisperModel(WhisperFile(small_model))


def test_a_model_of_english_knows_english(model):
    assert model.languages == ("en",)
    assert model.first_special == 50_256


def test_a_model_of_many_languages_knows_them(tmp_path):
    path = write_model(tmp_path / "many.bin", SMALL._replace(n_vocab=51_865))
    many = WhisperModel(WhisperFile(path))
    assert len(many.languages) == 99
    assert many.languages[:3] == ("en", "zh", "de")


def test_words_become_tokens_and_no_text_becomes_a_special_one(model):
    assert model.tokenize("") == ()
    assert model.tokenize(" hello") == (256,)
    assert model.tokenize("a\0b") == (ord("a"), ord(" "), ord("b"))
    spelled = model.tokenize("[_SOT_]<|startoftranscript|>[_TT_100]")
    assert all(token < model.first_special for token in spelled)


def test_a_file_that_changes_behind_its_header_is_refused(tmp_path):
    path = write_model(tmp_path / "m.bin")
    file = WhisperFile(path)
    with path.open("r+b") as opened:
        opened.truncate(100)
    with pytest.raises(LoadError, match="it changed while it was loaded"):
        WhisperModel(file)


def test_a_file_that_the_library_refuses_is_refused(small_model):
    class Gone(WhisperFile):
        @property
        def library_paths(self) -> list[bytes]:
            return [b"/proc/self/fd/-1"]

    with pytest.raises(LoadError, match=f"{small_model}: whisper.cpp cannot load it"):
        WhisperModel(Gone(small_model))
