import pytest

from inferd.cli.chat.questions import attach, takes
from inferd.cli.console import CommandError
from inferd.client.core.offers import ServedFacts
from tests.cases import each_case
from tests.media_files import png_file, wav_file


def served(*can: str) -> ServedFacts:
    return ServedFacts(name="a", aliases=(), state="ready", can=frozenset(can))


def test_a_model_takes_what_it_says_and_one_that_is_unknown_may():
    assert takes(served("vision"), "picture")
    assert not takes(served("vision"), "sound")
    assert takes(served("audio"), "sound")
    assert takes(None, "picture")


def test_a_file_is_attached_by_what_it_is_and_not_by_its_name(tmp_path):
    picture, sound = tmp_path / "a\x1b.wav", tmp_path / "b.png"
    picture.write_bytes(png_file())
    sound.write_bytes(wav_file())
    pending = attach(picture, "picture")
    assert (pending.kept.name, pending.kept.media_type) == ("a_.wav", "image/png")
    assert attach(sound, "sound").kept.n_bytes == sound.stat().st_size
    with pytest.raises(CommandError, match="not a picture"):
        attach(sound, "picture")


@each_case(("data", "told"), [(b"", "bytes are taken"), (b"text", "not a picture")])
def test_what_is_no_picture_is_refused(tmp_path, data, told):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(CommandError, match=told):
        attach(path, "picture")
    with pytest.raises(CommandError, match="No such file"):
        attach(tmp_path / "absent", "picture")
