"""Recordings in front of a daemon: OpenAI's own client, and requests of whisper.cpp's."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from tests.daemon.bridge import BridgeProcess, bridge_to, no_requests
from tests.daemon.fixtures import daemons
from tests.daemon.harness import PATIENCE_S, DaemonProcess, mock
from tests.documents.pages import command
from tests.fakes.recordings import transcode, write_sound

pytestmark = pytest.mark.slow

TOKENS = [" one", " two.", " three"]
"""Of a second of sound each."""
LEAVES_GENERATORS = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""OpenAI's client leaves its async generators to the garbage collector, which trio tells."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """One with a model that writes and two that transcribe."""
    speech = {"audio": True, "transcribe": True}
    with daemons() as make:
        backends = [
            mock(name="chat", audio=True),
            mock(name="speech", tokens=TOKENS, aliases=["whisper-1"], **speech),
            mock(name="slow", tokens=["x"], token_delay_ms=60_000, **speech),
        ]
        yield make({"backend": backends}).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    """One bridge to it."""
    with bridge_to(daemon) as made:
        yield made


@pytest.fixture
def client(bridge: BridgeProcess) -> Iterator[openai.OpenAI]:
    """The client that most programs have."""
    with bridge.client() as made:
        yield made


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """Three seconds, compressed."""
    folder = tmp_path_factory.mktemp("sound")
    return transcode(write_sound(folder / "a.wav", 3.0), folder / "a.flac")


def test_a_recording_is_transcribed(client, sound):
    with sound.open("rb") as file:
        found = client.audio.transcriptions.create(model="whisper-1", file=file)
    assert found.text == "one two. three"
    assert (found.usage.type, found.usage.seconds) == ("duration", 3.0)


def test_words_and_segments_have_times(client, sound):
    found = client.audio.transcriptions.create(
        model="speech",
        file=sound,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
        prompt="numbers",
        temperature=0.2,
    )
    assert [(each.word, each.start, each.end) for each in found.words] == [
        ("one", 0.0, 1.0),
        ("two.", 1.0, 2.0),
        ("three", 2.0, 3.0),
    ]
    assert [(each.text, each.start, each.end) for each in found.segments] == [
        ("one two.", 0.0, 2.0),
        (" three", 2.0, 3.0),
    ]
    assert (found.duration, found.language) == (3.0, "english")


@pytest.mark.parametrize(
    ("response_format", "text"),
    [
        ("text", "one two. three\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:01,000\none\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\none\n\n"),
    ],
)
def test_files_are_texts(client, sound, response_format, text):
    found = client.audio.transcriptions.create(
        model="speech", file=sound, response_format=response_format
    )
    assert found.startswith(text)


def test_a_transcript_is_streamed(client, sound):
    *deltas, last = client.audio.transcriptions.create(
        model="speech", file=sound, stream=True
    )
    assert [each.delta for each in deltas] == ["one", " two.", " three"]
    assert (last.type, last.text) == ("transcript.text.done", "one two. three")
    assert last.usage.total_tokens == last.usage.input_tokens + 3


@LEAVES_GENERATORS
@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
async def test_the_async_client_gets_the_same(bridge, sound):
    async with bridge.async_client() as client:
        found = await client.audio.translations.create(
            model="speech", file=sound, response_format="verbose_json"
        )
        assert (found.text, found.language) == ("one two. three", "english")
        stream = await client.audio.transcriptions.create(
            model="speech", file=sound, stream=True
        )
        kinds = [each.type async for each in stream]
    assert kinds == ["transcript.text.delta"] * 3 + ["transcript.text.done"]


def test_models_that_transcribe_are_listed(client):
    uses = {each.id: each.model_extra["uses"] for each in client.models.list()}
    able = {name for name in uses if "transcribe" in uses[name]}
    assert (able, len(uses)) == ({"speech", "whisper-1", "slow"}, 4)


def test_a_model_that_writes_is_not_asked_for_a_transcript(client, sound):
    with pytest.raises(openai.NotFoundError) as caught:
        client.audio.transcriptions.create(model="chat", file=sound)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_file_that_is_no_recording_is_named(client):
    with pytest.raises(openai.BadRequestError, match="^Error code: 400.*audio") as no:
        client.audio.transcriptions.create(model="speech", file=b"no sound")
    assert no.value.param == "file"


@LEAVES_GENERATORS
async def test_a_hang_up_ends_the_transcription(daemon, bridge, sound):
    async with bridge.async_client() as client, trio.open_nursery() as nursery:

        async def ask() -> None:
            await client.audio.transcriptions.create(model="slow", file=sound)

        nursery.start_soon(ask)
        with daemon.admin() as admin:
            while not admin.order("requests")["requests"]:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert no_requests(daemon)


def test_the_command_of_its_page_transcribes(bridge, sound):
    line = command("docs/bridge.md", "/v1/audio/transcriptions")
    line = line.replace("http://127.0.0.1:8313", bridge.address)
    line = line.replace("talk.mp3", shlex.quote(str(sound)))
    found = subprocess.run(line, shell=True, capture_output=True, check=True)  # noqa: S602
    assert json.loads(found.stdout)["text"] == "one two. three"


# --- whisper.cpp's server ---------------------------------------------------------------


def curl(bridge: BridgeProcess, path: str, *fields: str) -> tuple[int, str, str]:
    """Send a form; give the status, the media type and the body."""
    options = [word for field in fields for word in ("-F", field)]
    written = "\n%{http_code} %{content_type}"
    found = subprocess.run(
        ["curl", "-sS", "-w", written, bridge.address + path, *options],
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE_S,
    )
    body, _, status = found.stdout.rpartition("\n")
    code, _, kind = status.partition(" ")
    return int(code), kind, body


def test_the_request_of_its_manual_is_answered(bridge, sound):
    status, kind, body = curl(
        bridge,
        "/inference",
        f"file=@{sound}",
        "temperature=0.0",
        "temperature_inc=0.2",
        "response_format=json",
    )
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {"text": "one\ntwo.\nthree\n"}


def test_its_other_forms(bridge, sound):
    file = f"file=@{sound};type=audio/flac"
    text = curl(bridge, "/inference", file, "response_format=text")
    assert text == (200, "text/plain; charset=utf-8", "one\ntwo.\nthree\n")
    srt = curl(bridge, "/inference", file, "response_format=srt", "offset_n=4")
    assert srt[2].startswith("5\n00:00:00,000 --> 00:00:01,000\none\n")
    _, _, body = curl(bridge, "/inference", file, "response_format=verbose_json")
    found: Any = json.loads(body)
    assert (found["task"], found["duration"]) == ("transcribe", 3.0)
    assert "".join(each["text"] for each in found["segments"]) == "one two. three"


def test_its_errors_are_texts(bridge, sound):
    file = f"file=@{sound}"
    for fields, path, words in [
        ((file, "temperature=warm"), "/inference", "temperature: "),
        ((file, "vad=true"), "/inference", "vad: "),
        (("temperature=0",), "/inference", "file: is missing"),
        (("model=/etc/passwd",), "/load", "model: "),
    ]:
        status, kind, body = curl(bridge, path, *fields)
        assert (status, kind) == (400, "application/json")
        assert json.loads(body)["error"].startswith(words)
