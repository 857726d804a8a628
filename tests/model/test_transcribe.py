"""Recorded speech, through a real daemon and whisper.cpp."""

import array
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, Frame, MakeDaemon, to_line
from tests.model.changes import HANGS, HEARS_LITTLE
from tests.model.embedded import embedded_path
from tests.model.sound import (
    RATE,
    read_wav,
    said,
    sealed,
    silence,
    spans,
    speech,
    speech_in,
    text64,
    tone,
)
from tests.model.tiny_whisper import SEGMENTS, write_tiny_whisper
from tools.spoken_clip import clip_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

WORDS = (
    "And so my fellow Americans ask not what your country can do for you{} "
    "ask what you can do for your country."
)
CLIP_MS = 11_000
V2 = "infer.v2.sock"
RECITED = SEGMENTS[0][-1].strip()
"""Of a second of sound."""


def whispercpp(**settings: object) -> dict[str, object]:
    return {"name": "speech", "kind": "whispercpp", "n_threads": 1, **settings}


@pytest.fixture(scope="module")
def clip() -> bytes:
    return read_wav(clip_path())


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        config = {
            "backend": [whispercpp()],
            "admission": {"max_active": 2, "max_queued": 20},
        }
        yield make(config, environ=HEARS_LITTLE).start()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_whisper(tmp_path_factory.mktemp("whisper") / "m.bin")


@pytest.fixture(scope="module")
def reciting(tiny) -> Iterator[DaemonProcess]:
    """What hears nothing, says the same of each half minute, and takes no time to."""
    with daemons() as make:
        yield make({"backend": [whispercpp(model=str(tiny))]}).start()


@pytest.fixture(scope="module")
def plain(daemon, clip):
    """The frames of a request for the clip that sets nothing."""
    return ask(daemon, speech(clip))


def ask(daemon: DaemonProcess, request):
    with daemon.connect(V2) as client:
        return client.ask(request)


def refusal(daemon, request):
    [frame] = ask(daemon, request)
    assert (frame["type"], frame["id"]) == ("error", "s")
    return frame["code"], frame["message"]


def test_the_english_model_writes_the_clip_down_exactly(plain):
    assert said(plain) == WORDS.format("")
    done = plain[-1]
    assert (done["type"], done["stop_reason"], done["backend"]) == (
        "done",
        "end_turn",
        "speech",
    )
    assert done["transcription"]["language"] == "en"
    assert done["transcription"]["audio_ms"] == CLIP_MS
    assert done["transcription"]["real_time_factor"] > 0
    assert done["usage"]["input_tokens"] >= 50 * CLIP_MS // 1000


@pytest.mark.long
def test_the_multilingual_model_writes_it_down_and_tells_the_language(
    make_daemon: MakeDaemon, clip
):
    config = {"backend": [whispercpp(model="embedded:speech-multilingual")]}
    daemon = make_daemon(config, environ=HEARS_LITTLE).start()
    frames = ask(daemon, speech(clip, language="auto"))
    assert said(frames) == WORDS.format(",")
    told = frames[-1]["transcription"]
    assert told["language"] == "en"
    assert told["language_probability"] == pytest.approx(0.96, abs=0.03)


def test_words_come_in_order_and_inside_the_clip(daemon, clip):
    frames = ask(daemon, speech(clip, timestamps="word"))
    assert said(frames) == WORDS.format("")
    heard = [each["block"]["delta"].strip() for each in frames[:-1]]
    assert heard == WORDS.format("").split()
    times = spans(frames)
    assert all(0 <= start < end <= CLIP_MS for start, end in times)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))
    assert times[0][1] < CLIP_MS / 4 < CLIP_MS * 3 / 4 < times[-1][0]


def test_what_one_client_sets_does_not_leak_to_the_next(daemon, plain, clip):
    ask(daemon, speech(clip, timestamps="word", temperature=1, prompt="JOHN F KENNEDY"))
    again = ask(daemon, speech(clip))
    assert (said(again), spans(again)) == (said(plain), spans(plain))


def test_an_unsealed_descriptor_is_refused_and_the_connection_goes_on(reciting, clip):
    attachment = {"kind": "audio", "id": "a", "sample_rate": RATE, "fd": 0}
    with reciting.connect(V2) as client:
        fd = os.memfd_create("open", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(fd, clip)
        client.hand_over(to_line(speech_in(attachment)), [fd])
        [frame] = client.frames()
        assert (frame["id"], frame["code"]) == ("s", "invalid_request")
        assert "seal" in frame["message"]
        assert client.ask(speech(clip))[-1]["transcription"]["audio_ms"] == CLIP_MS


def test_speech_is_heard_while_it_is_spoken(daemon, clip):
    with daemon.connect(V2) as client:
        client.send(speech())
        for piece in pieces(clip, seconds=1):
            client.send(append(piece))
        partial = client.frame()
        assert (partial["type"], partial["status"]) == ("status", "partial")
        client.send({"type": "append", "id": "s", "attachment_id": "a", "end": True})
        frames = client.frames()
    heard = said(frames).casefold()
    assert "my fellow americans" in heard
    assert "what you can do for your country" in heard
    told = frames[-1]["transcription"]
    assert told["audio_ms"] == CLIP_MS
    assert told["latency_ms"] > 0


def pieces(data: bytes, *, seconds: float):
    size = 4 * int(seconds * RATE)
    return [data[at : at + size] for at in range(0, len(data), size)]


def append(data: bytes):
    return {"type": "append", "id": "s", "attachment_id": "a", "bytes": text64(data)}


def test_a_half_closed_client_has_ended_its_sound(reciting, clip):
    with reciting.connect(V2) as client:
        client.send(speech())
        client.send(append(clip))
        client.half_close()
        done = client.frames()[-1]
    assert (done["type"], done["stop_reason"]) == ("done", "end_turn")
    assert done["transcription"]["audio_ms"] == CLIP_MS


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (speech(b""), "no samples"),
        (speech(bytes(6)), "4"),
        (speech(bytes(400), rate=44_100), "44100"),
        (
            speech_in({"kind": "audio", "id": "a", "sample_rate": RATE, "bytes": "?"}),
            "base64",
        ),
        (speech(array.array("f", [0.0, math.nan] * 800).tobytes()), "sample 1"),
        (speech(array.array("f", [math.inf]).tobytes() * 1600), "sample 0"),
        (speech(silence(1), language="de"), "de"),
        (speech(silence(1), language="tlh"), "tlh"),
        (speech(silence(1), translate=True), "translate"),
        (speech(silence(1), timestamps="line"), "timestamps"),
        (speech(silence(1), timestamps="word", top_k=4), "top_k"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_any_text(daemon, request_, words):
    code, message = refusal(daemon, request_)
    assert code == "invalid_request"
    assert words in message


def test_both_rates_are_named(daemon):
    _, message = refusal(daemon, speech(bytes(400), rate=44_100))
    assert "44100" in message
    assert "16000" in message


@pytest.mark.parametrize("sound", [silence(3), tone(3, level=9), silence(0.05)])
def test_sound_without_speech_ends_well(daemon, sound):
    done = ask(daemon, speech(sound))[-1]
    assert (done["type"], done["stop_reason"]) == ("done", "end_turn")
    assert done["transcription"]["audio_ms"] == len(sound) // 4 * 1000 // RATE


@pytest.mark.long
def test_two_that_run_and_one_that_waits_get_what_one_gets_in_a_descriptor_too(
    daemon, clip
):
    attachment = {"kind": "audio", "id": "a", "sample_rate": RATE, "fd": 0}
    clients = [daemon.connect(V2) for _ in range(3)]
    clients[0].hand_over(to_line(speech_in(attachment)), [sealed(clip)])
    for client in clients[1:]:
        client.send(speech(clip))
    assert [said(client.frames()) for client in clients] == [WORDS.format("")] * 3


def test_a_cancel_stops_within_a_segment(daemon, clip):
    with daemon.connect(V2) as client:
        client.send(speech((clip + silence(19)) * 2))
        client.frame()
        client.send({"type": "cancel", "id": "s"})
        done = client.frames()[-1]
        assert done["stop_reason"] == "cancelled"
        assert said(client.ask(speech(clip))) == WORDS.format("")


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ([speech(), append(silence(5))], {"type": "status", "status": "partial"}),
        ([speech(silence(60))], {"type": "frame"}),
    ],
    ids=["live", "recorded"],
)
def test_a_worker_that_dies_in_mid_sound_costs_one_error(
    make_daemon: MakeDaemon, tiny, lines, first
):
    config = {"backend": [whispercpp(model=str(tiny))]}
    daemon = make_daemon(config, environ=HANGS).start()
    with daemon.connect(V2) as client, daemon.connect(V2) as waiting:
        for line in lines:
            client.send(line)
        assert first.items() <= client.frame().items()
        waiting.send(speech(silence(1)))
        daemon.kill_worker()
        last = client.frames()[-1]
        assert (last["type"], last["code"]) == ("error", "backend_unavailable")
        assert said(waiting.frames()) in (RECITED, "")


@pytest.mark.parametrize("damage", ["missing", "empty", "random", "half", "other"])
def test_a_bad_model_file_is_a_clear_refusal(make_daemon, tmp_path, damage):
    model = embedded_path("speech").read_bytes()
    contents = {
        "empty": b"",
        "random": bytes(range(256)) * 400,
        "half": model[: len(model) // 2],
        "other": b"GGUF" + bytes(100),
    }
    path = tmp_path / "model.bin"
    if damage != "missing":
        path.write_bytes(contents[damage])
    line = make_daemon({"backend": [whispercpp(model=str(path))]}).refusal()
    assert str(path) in line
    assert "Traceback" not in line


LONG_S = 900
"""Of sound: a window has ten minutes, so a recording is heard in two."""
AHEAD_S = 120
"""Of sound that is sent before it is heard."""
APPENDED_BYTES = 140_000_000
"""More than it takes, 111 to 115 MB; 163 MB if nothing that was heard were given back."""
RECORDED_BYTES = 191_000_000
"""More than it takes, 171 MB; 211 MB if all were heard in one window."""


@pytest.fixture
def untrained(make_daemon: MakeDaemon, tmp_path: Path) -> DaemonProcess:
    model = write_tiny_whisper(tmp_path / "m.bin", end_ms=30_000)
    return make_daemon({"backend": [whispercpp(model=str(model), n_threads=1)]}).start()


@pytest.mark.long
def test_sound_that_is_appended_for_long_takes_bounded_memory(untrained):
    piece = append(silence(10))
    with untrained.connect(V2) as client:
        before = most = memory_of(untrained)
        heard_s = 0.0
        client.send(speech())
        for sent_s in range(10, LONG_S + 1, 10):
            client.send(piece)
            while sent_s > heard_s + AHEAD_S:
                heard_s = _end_of(client.frame())
            most = max(most, memory_of(untrained))
        client.send({"type": "append", "id": "s", "attachment_id": "a", "end": True})
        done = client.frames()[-1]
    assert done["transcription"]["audio_ms"] == LONG_S * 1000
    assert most - before < APPENDED_BYTES


@pytest.mark.long
def test_a_long_sound_in_a_descriptor_takes_bounded_memory(untrained):
    attachment = {"kind": "audio", "id": "a", "sample_rate": RATE, "fd": 0}
    with untrained.connect(V2) as client:
        before = most = memory_of(untrained)
        client.hand_over(
            to_line(speech_in(attachment)), [sealed(bytes(4 * RATE * LONG_S))]
        )
        while (frame := client.frame())["type"] == "frame":
            most = max(most, memory_of(untrained))
    assert frame["transcription"]["audio_ms"] == LONG_S * 1000
    assert most - before < RECORDED_BYTES  # the file is its client's


def _end_of(frame: Frame) -> float:
    """Tell up to which second a segment, or what may become one, has been heard."""
    return float(frame.get("block", frame).get("end_ms", 0)) / 1000


def memory_of(daemon: DaemonProcess) -> int:
    """Tell the bytes of a daemon and its workers, and of files in memory it made."""
    pids = (daemon.pid, *daemon.worker_pids())
    return sum(map(resident, pids)) + sum(map(held, own_files(daemon.pid)))


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def own_files(pid: int) -> Iterator[Path]:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if "memfd:inferd" in str(path.readlink()):
                yield path


def held(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_blocks * 512
    return 0
