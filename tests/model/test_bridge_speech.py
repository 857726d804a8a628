"""Recorded speech over HTTP: OpenAI's client, the bridge, the daemon and whisper.cpp."""

from collections.abc import Iterator

import openai
import pytest

from inferd.client import Client
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.fakes.recordings import write_sound
from tests.model.changes import HEARS_LITTLE
from tests.model.tiny_whisper import write_tiny_whisper
from tools.spoken_clip import clip_path

pytestmark = [pytest.mark.slow, pytest.mark.model]

LIVE_BLOCKS = 100
"""Of 5 s: more than the daemon buffers, so that an answer at the end alone is seen."""
SAID = (
    "And so my fellow Americans ask not what your country can do for you "
    "ask what you can do for your country."
)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory) -> Iterator[BridgeProcess]:
    """A bridge to a daemon with an English model, and one with random weights."""
    tiny = write_tiny_whisper(tmp_path_factory.mktemp("whisper") / "m.bin")
    table = {"kind": "whispercpp", "n_threads": 1}
    backends = [
        {**table, "name": "english"},
        {**table, "name": "tiny", "model": str(tiny)},
    ]
    with daemons() as make:
        daemon = make({"backend": backends}, environ=HEARS_LITTLE).start()
        with bridge_to(daemon) as made:
            yield made


@pytest.fixture(scope="module")
def client(bridge) -> Iterator[openai.OpenAI]:
    """A client of it."""
    with bridge.client() as made:
        yield made


@pytest.mark.long
def test_a_recording_is_written_down_exactly(client):
    found = client.audio.transcriptions.create(
        model="english",
        file=clip_path(),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert (found.text, found.language, found.duration) == (SAID, "english", 11.0)
    assert [each.word for each in found.words] == SAID.split()
    [sentence] = found.segments
    assert sentence.text.strip() == SAID
    assert found.words[0].start == sentence.start < sentence.end == found.words[-1].end


def test_a_stream_adds_up_to_the_recording(client):
    *deltas, done = client.audio.transcriptions.create(
        model="english", file=clip_path(), stream=True
    )
    assert "".join(each.delta for each in deltas) == done.text == SAID
    assert done.usage.input_tokens >= 550  # 50 for each second


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_what_a_model_cannot_do_is_refused_with_the_field(client):
    sound = clip_path()
    with pytest.raises(openai.BadRequestError, match="knows only en") as caught:
        client.audio.translations.create(model="english", file=sound)
    assert caught.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="'de'|\"de\"") as caught:
        client.audio.transcriptions.create(model="english", file=sound, language="de")
    assert caught.value.param == "language"
    with pytest.raises(openai.BadRequestError, match="78 too many") as caught:
        client.audio.transcriptions.create(
            model="english", file=sound, prompt="names " * 300
        )
    assert (caught.value.code, caught.value.param) == (
        "context_length_exceeded",
        "prompt",
    )


@pytest.mark.long
def test_a_long_recording_is_sent_and_heard_to_its_end(client, tmp_path):
    found = client.audio.transcriptions.create(
        model="tiny",
        file=write_sound(tmp_path / "a.wav", 90.0),
        response_format="verbose_json",
    )
    assert found.duration == 90


def test_live_sound_is_written_down_before_it_ends(bridge):
    told: list[str] = []
    n_blocks = 0

    def blocks() -> Iterator[bytes]:
        nonlocal n_blocks
        while not told and n_blocks < LIVE_BLOCKS:
            n_blocks += 1
            yield bytes(4 * 16_000 * 5)

    with Client(url=bridge.address) as client:
        heard = client.transcribe(
            blocks(), model="tiny", on_segment=lambda each: told.append(each.text)
        )
    assert told
    assert n_blocks < LIVE_BLOCKS
    assert [each.text for each in heard.segments] == told
