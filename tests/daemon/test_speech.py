import itertools
import math
import signal
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.daemon.connection import to_line
from tests.daemon.fixtures import daemons
from tests.daemon.harness import Connection, DaemonProcess, MakeDaemon, eventually, mock
from tests.daemon.speech import (
    RATE,
    SECOND,
    V2,
    appended,
    hand_over,
    live,
    recording,
    said,
    shared_bytes,
)

pytestmark = pytest.mark.slow

WORDS = [" One", " two", " three."]
TEN_SECONDS = 10 * SECOND
"""As much as a line may append: less than a MiB."""


def hears(**settings) -> dict[str, object]:
    return mock(tokens=WORDS, transcribe=True, audio=True, vision=True, **settings)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        config = {"backend": [hears()], "admission": {"max_active": 4}}
        yield make(config).start()


@pytest.fixture
def client(daemon: DaemonProcess):
    with daemon.connect(V2) as connection:
        yield connection


def ended(client: Connection):
    """Read the frames of an answer up to its only terminal one."""
    *frames, last = client.frames()
    assert not [frame for frame in frames if frame["type"] in ("done", "error")]
    return frames, last


# --- a recording ------------------------------------------------------------------------


@pytest.mark.parametrize("by_fd", [True, False])
def test_a_recording_is_text_with_its_times(client, by_fd):
    if by_fd:
        hand_over(client, recording(None), [3 * SECOND])
    else:
        client.send(recording(3 * SECOND))
    frames, done = ended(client)
    assert said(frames) == "One two three."
    times = [(f["block"]["start_ms"], f["block"]["end_ms"]) for f in frames]
    assert times == [(0, 1000), (1000, 2000), (2000, 3000)]
    assert done["stop_reason"] == "end_turn"
    assert done["usage"] == {
        "input_tokens": 150,
        "output_tokens": 3,
        "cached_tokens": 0,
    }
    told = done["transcription"]
    assert (told["language"], told["language_probability"]) == ("en", 1)
    assert told["audio_ms"] == 3000
    assert 0 <= told["real_time_factor"] < 1
    assert "latency_ms" not in told


def test_without_streaming_each_piece_keeps_its_times(client):
    frames, _ = ended_of(client, recording(3 * SECOND, stream=False))
    assert [frame["block"]["end_ms"] for frame in frames] == [1000, 2000, 3000]


def ended_of(client: Connection, frame):
    client.send(frame)
    return ended(client)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"language": "de"}, {"language": "de"}),
        ({"timestamps": "word", "translate": True, "temperature": 0}, {}),
    ],
)
def test_its_options_are_taken(client, fields, told):
    _, done = ended_of(client, recording(**fields))
    assert done["transcription"].items() >= told.items()


def test_nothing_is_heard_where_there_is_nothing(client):
    frames, done = ended_of(client, recording(b""))
    assert frames == []
    assert done["transcription"]["audio_ms"] == 0


def test_an_answer_may_be_bounded(client):
    frames, done = ended_of(client, recording(max_tokens=1))
    assert (said(frames), done["stop_reason"]) == ("One", "max_tokens")


@pytest.mark.parametrize(
    ("frame", "code", "words"),
    [
        (recording(sample_rate=44100), "invalid_request", "44100 is not the 16000"),
        (recording(bytes(7)), "invalid_request", "7 bytes"),
        (recording(struct.pack("<2f", 0, math.nan)), "invalid_request", "sample 1 is"),
        (recording(struct.pack("<f", 1e9)), "invalid_request", "sample 0 is"),
        (recording(language="xx"), "invalid_request", "language xx not in"),
        (recording(language="de", seed=1), "invalid_request", "cannot honour seed"),
        (live(thinking=True), "invalid_request", "cannot honour thinking"),
    ],
)
def test_what_cannot_be_is_refused_and_the_next_is_served(client, frame, code, words):
    frames, error = ended_of(client, frame)
    assert (frames, error["code"], error["id"]) == ([], code, "r")
    assert words in error["message"]
    _, done = ended_of(client, recording())
    assert done["type"] == "done"


def test_an_image_and_sound_go_to_a_model_that_writes(client):
    frame = recording(None)
    image = {"kind": "image", "id": "i", "width": 2, "height": 1, "fd": 1}
    frame["attachments"].append(image)
    frame["messages"][0]["content"].append({"type": "image", "attachment_id": "i"})
    hand_over(client, frame, [SECOND, bytes(6)])
    frames, done = ended(client)
    assert said(frames) == "".join(WORDS)
    assert "transcription" not in done


# --- sound that is appended -------------------------------------------------------------


def test_what_is_said_is_heard_while_it_is_sent(client):
    client.send(live())
    client.send(appended(SECOND))
    partial = client.frame()
    assert partial == {
        "type": "status",
        "id": "r",
        "status": "partial",
        "text": "One",
        "start_ms": 0,
        "end_ms": 1000,
    }
    hand_over(client, appended(fd=0), [SECOND])
    assert client.frame()["status"] == "partial"
    client.send(appended(SECOND, end=True))
    frames, done = ended(client)
    assert said(frames) == "One two three."
    assert done["transcription"]["audio_ms"] == 3000
    assert 0 < done["transcription"]["latency_ms"] < 5000


def test_it_may_begin_in_the_request_and_end_by_itself(client):
    client.send(live(SECOND))
    client.send(appended(end=True))
    _, done = ended(client)
    assert done["transcription"]["audio_ms"] == 1000


def test_who_can_send_no_more_has_ended_it(client):
    client.send(live(SECOND))
    client.send(appended(SECOND))
    client.half_close()
    frames, done = ended(client)
    assert said(frames) == "One two three."
    assert done["transcription"]["audio_ms"] == 2000
    client.read_eof()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (appended(bytes(6)), "6 bytes"),
        (appended(bytes=";"), "base64"),
        (appended(SECOND, attachment_id="b"), "not open"),
        (appended(fd=0), "descriptors"),
        (appended(struct.pack("<f", math.inf)), "sample 16000 is inf"),
    ],
)
def test_what_cannot_be_appended_ends_the_request_with_one_error(client, line, words):
    client.send(live(SECOND))
    client.frame()
    _, error = ended_of(client, line)
    assert error["code"] == "invalid_request"
    assert words in error["message"]
    assert ended_of(client, recording())[1]["type"] == "done"


def test_what_is_appended_too_late_is_ignored(client):
    client.send(recording())
    ended(client)
    client.send(appended(SECOND))
    assert ended_of(client, recording())[1]["type"] == "done"


def test_a_cancel_ends_it_while_it_is_open(client):
    client.send(live(SECOND))
    client.frame()
    client.send({"type": "cancel", "id": "r"})
    _, done = ended(client)
    assert done["stop_reason"] == "cancelled"


def test_a_deadline_ends_it_while_it_is_open(client):
    client.send(live(SECOND, deadline_ms=200))
    _, error = ended(client)
    assert error["code"] == "deadline_exceeded"


def test_an_operator_may_end_it(daemon, client):
    client.send(live(SECOND))
    client.frame()
    with daemon.admin() as admin:
        assert admin.order("cancel", id="r")["ok"]
    _, done = ended(client)
    assert done["stop_reason"] == "cancelled"


def test_a_client_that_leaves_leaves_nothing(daemon):
    with daemon.connect(V2) as client:
        client.send(live(SECOND))
        client.frame()
        assert shared_bytes(daemon.pid) > 0
    assert eventually(lambda: not shared_bytes(daemon.pid))


@pytest.mark.long
def test_twenty_minutes_that_are_appended_take_bounded_memory(daemon):
    stop, most = threading.Event(), [0]

    def watch() -> None:
        while not stop.wait(0.02):
            most[0] = max(most[0], shared_bytes(daemon.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with Connection(daemon.directory / V2, timeout_s=120) as client:
        client.send(live(stream=False))
        client.pour(119 * [to_line(appended(TEN_SECONDS))])
        client.send(appended(TEN_SECONDS, end=True))
        frames, done = ended(client)
    stop.set()
    watcher.join()
    assert done["transcription"]["audio_ms"] == 1200_000
    assert said(frames) == "One two three."
    assert 0 < most[0] < 32 * 2**20  # of 73
    assert eventually(lambda: not shared_bytes(daemon.pid))


def test_ten_clients_are_heard_at_once(daemon):
    clients = [daemon.connect(V2) for _ in range(10)]
    for client in clients:
        client.send(live(SECOND))
    for client in clients:
        client.send(appended(SECOND, end=True))
    for client in clients:
        frames, done = ended(client)
        assert said(frames) == "One two three."
        assert done["transcription"]["audio_ms"] == 2000


def test_the_log_and_the_figures_tell_of_sound_and_not_what_was_said(daemon):
    with daemon.connect(V2) as client, daemon.admin() as admin:
        ended_of(client, recording(2 * SECOND, id="told"))
        text = admin.order("metrics")["text"]
    assert 'inferd_audio_seconds_total{backend="mock"}' in text
    [line] = daemon.logged(req_id="told")
    assert line["audio_ms"] == 2000
    assert line["real_time_factor"] >= 0
    assert "One" not in daemon.stderr()


# --- what goes wrong --------------------------------------------------------------------


@pytest.fixture
def slow(make_daemon: MakeDaemon) -> DaemonProcess:
    backend = mock(tokens=["x"] * 10_000, token_delay_ms=20, transcribe=True)
    return make_daemon({"backend": [backend]}).start()


def test_a_worker_that_dies_in_mid_file_costs_one_error(slow):
    with slow.connect(V2) as client:
        client.send(recording())
        client.frame()
        slow.kill_worker()
        _, error = ended(client)
        assert error["code"] == "backend_unavailable"
        _, done = ended_of(client, recording(max_tokens=1))
        assert done["stop_reason"] == "max_tokens"


def test_a_worker_that_dies_while_sound_is_open_costs_one_error(slow):
    with slow.connect(V2) as client:
        client.send(live(SECOND))
        client.frame()
        slow.kill_worker(signal.SIGSEGV)
        _, error = ended(client)
        assert error["code"] == "backend_unavailable"
        client.send(appended(SECOND))
        assert ended_of(client, recording(max_tokens=1))[1]["type"] == "done"


def test_sound_that_is_not_heard_yet_waits_in_the_clients_socket(make_daemon):
    backend = mock(token_delay_ms=3_600_000, transcribe=True)  # a MiB in an hour
    limits = {"max_audio_ahead_bytes": 4 * 2**20}
    daemon = make_daemon({"backend": [backend], "limits": limits}).start()
    lines, n_sent = [to_line(appended(TEN_SECONDS))] * 60, itertools.count()

    def is_full() -> bool:
        return shared_bytes(daemon.pid) >= 4 * 2**20 - 2**18

    with daemon.connect(V2) as client:
        client.send(live())
        counted = (line for line in lines if next(n_sent) >= 0)
        speaker = threading.Thread(target=client.pour, args=(counted,))
        speaker.start()
        assert eventually(is_full)
        daemon.catch_up()
        assert shared_bytes(daemon.pid) <= 5 * 2**20
        client.half_close()
        speaker.join()
    assert next(n_sent) < 20
    assert eventually(lambda: not shared_bytes(daemon.pid))


def test_who_appends_nothing_is_not_waited_for(make_daemon):
    config = {"backend": [hears()], "limits": {"line_timeout_s": 0.5}}
    with make_daemon(config).start().connect(V2) as client:
        client.send(live(SECOND))
        _, error = ended(client)
    assert error["code"] == "invalid_request"
    assert "nothing was appended" in error["message"]


def test_a_drain_gives_one_end_to_what_is_open(make_daemon):
    config = {"backend": [hears()], "limits": {"drain_s": 0.3}}
    daemon = make_daemon(config).start()
    with daemon.connect(V2) as client:
        client.send(live(SECOND))
        client.frame()
        daemon.send_signal(signal.SIGTERM)
        _, error = ended(client)
        assert error["code"] == "backend_unavailable"
        client.read_eof()
    assert daemon.wait() == 0


def test_a_backend_that_hears_nothing_serves_no_speech(make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    with daemon.connect(V2) as client:
        for frame in (recording(), live(), recording(language="de")):
            _, error = ended_of(client, frame)
            assert error["code"] == "attachment_unsupported"
    assert RATE == 16_000
