"""Our models in whisper.cpp, without our worker: they are what they are taken for."""

import pytest

from tests.model.embedded import embedded_path
from tests.model.tiny_whisper import SEGMENTS, TRANSLATED, write_tiny_whisper
from tests.model.whisper_alone import heard_alone
from tools.spoken_clip import clip_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

SPEECH = (
    "And so my fellow Americans ask not what your country can do for you{} "
    "ask what you can do for your country."
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "between"), [("speech", ""), ("speech-multilingual", ",")]
)
def test_an_embedded_model_writes_the_recording_down(name, between):
    model = embedded_path(name)
    [segments] = heard_alone(model, [clip_path()])
    assert "".join(text for _, _, text in segments).strip() == SPEECH.format(between)
    assert segments[0][0] == 0
    assert segments[-1][1] == 11_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("is_multilingual", "language", "translate", "expected"),
    [
        (False, "en", False, SEGMENTS),
        (True, "auto", False, SEGMENTS),
        (True, "fr", False, SEGMENTS),
        (True, "auto", True, TRANSLATED),
    ],
)
def test_the_tiny_model_says_its_piece(
    tmp_path, is_multilingual, language, translate, expected
):
    model = write_tiny_whisper(tmp_path / "m.bin", is_multilingual=is_multilingual)
    heard = heard_alone(
        model, [clip_path(), clip_path()], language=language, translate=translate
    )
    assert heard == [list(expected)] * 2
