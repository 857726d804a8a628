import json
import re
import socket
from threading import Event

import pytest

from protocol.player import settle
from protocol.vector import LEAVES
from tests.daemon.configuration import mock
from tests.daemon.connection import Connection
from tests.daemon.fixtures import daemons
from tests.examples.clients import LANGUAGES, Client
from tests.vectors.scripted import Last, frames, says, scripted

pytestmark = pytest.mark.slow

START_S = 90.0
DONE = {"type": "done", "id": "1", "content": "", "stop_reason": "end"}
EMBEDDINGS = {"type": "embeddings", "embeddings": [[1, -0.5, 2e-1]], "dimensions": 3}
RERANK = {"type": "rerank", "results": [{"index": 2, "score": 1}, {"index": 0}]}
SAID = 'ü\n"\\/\t\x01 😀\u2028 {"delta":"no"}'


@pytest.fixture(scope="module", params=LANGUAGES)
def client(request, tmp_path_factory):
    """Build the client of each language once."""
    return Client(request.param, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def start():
    """Give the directory of a daemon of that configuration, started for the first."""
    started = {}

    with daemons() as make:

        def start(*tokens, **tables):
            config = {"backend": [mock(tokens=tokens)], **tables}
            key = json.dumps(config)
            if key not in started:
                started[key] = make(config).start().directory
                settle(started[key], timeout_s=START_S)
            return started[key]

        yield start


def piece(surface, text, **fields):
    """Make a frame of an answer."""
    if surface == "v1":
        return {**fields, "type": "token", "id": "1", "content": text}
    block = {"delta": text, "type": "text"}
    return {**fields, "type": "frame", "id": "1", "block": block}


# --- with a daemon ----------------------------------------------------------------


def test_a_client_does_all_three(client, start):
    directory = start("Hel", "lo")
    ended = client.run(str(directory))
    assert (ended.returncode, ended.stderr) == (0, "")
    answer, embedding, ranking = ended.stdout.splitlines()
    assert answer == "Hello"
    assert ranking == "ranking: 1 0 2"
    dimension, *first = re.findall(r"-?[0-9.]+", embedding)
    with Connection(directory / LEAVES["embed"]) as connection:
        connection.send({"input": ["Paris is the capital of France"]})
        [vector] = connection.frame()["embeddings"]
    assert dimension == "8"
    assert [float(number) for number in first] == pytest.approx(vector[:3], abs=1e-4)


def test_text_is_printed_as_the_model_said_it(client, start):
    ended = client.run(str(start(*SAID)))
    assert ended.stdout.startswith(f"{SAID}\nembedding: ")


def test_a_surface_that_is_turned_off_is_skipped_and_said(client, start):
    directory = start("Hel", "lo", listen={"embed": False, "rerank": False})
    ended = client.run(str(directory))
    assert (ended.returncode, ended.stdout) == (0, "Hello\n")
    assert ended.stderr.splitlines() == [
        "no infer.embed.sock: skipped",
        "no infer.rerank.sock: skipped",
    ]


# --- with whatever may come -------------------------------------------------------


def test_frames_are_read_however_they_are_written(client, short_dir):
    strange = {"x": {"type": "done", "block": {"delta": "no"}}, "y": ['"type":"done"']}
    lines = frames(
        {"type": "status", "id": "1", "status": "queued", "position": 1},
        {"type": "frame", "id": "1", "block": {"type": "thinking", "delta": "no"}},
        {"type": "hologram", "content": None},
        piece(client.surface, SAID, **strange),
        DONE | strange,
    )
    answers = {
        client.surface: lambda _: lines.replace(b'{"', b' { "', 1),
        "embed": says(EMBEDDINGS),
        "rerank": says(strange | RERANK),
    }
    with scripted(short_dir, **answers):
        ended = client.run(str(short_dir))
    assert (ended.returncode, ended.stderr) == (0, "")
    answer, _, rest = ended.stdout.rpartition("\nembedding: ")
    assert answer == SAID
    assert re.fullmatch(
        r"3 numbers, first 1(\.0*)? -0\.50* 0\.20*\nranking: 2 0\n", rest
    )


@pytest.mark.parametrize("surface", ["generate", "embed", "rerank"])
def test_an_error_is_a_failure_that_is_told(client, short_dir, surface):
    good = {client.surface: says(DONE), "embed": says(EMBEDDINGS)}
    name = client.surface if surface == "generate" else surface
    error = {"type": "error", "code": "queue_full", "message": 'so "full"'}
    with scripted(short_dir, **(good | {name: says(error)})):
        ended = client.run(str(short_dir))
    assert ended.returncode != 0
    assert 'queue_full: so "full"' in ended.stderr


@pytest.mark.parametrize("half", [b"", b'{"type":"do'])
def test_an_end_before_the_terminal_frame_is_a_failure(client, short_dir, half):
    said = Last(frames(piece(client.surface, "Hel")) + half)
    with scripted(short_dir, **{client.surface: lambda _: said}):
        ended = client.run(str(short_dir))
    assert ended.returncode != 0
    assert ended.stdout.startswith("Hel")
    assert ended.stderr != ""


def test_no_daemon_is_a_failure(client, short_dir):
    ended = client.run(str(short_dir))
    assert ended.returncode != 0
    assert "no daemon" in ended.stderr


def test_a_socket_that_nobody_listens_on_is_a_failure(client, short_dir):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(short_dir / LEAVES[client.surface]))
    assert client.run(str(short_dir)).returncode != 0


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_daemon_that_falls_silent_is_left(tmp_path, short_dir, name):
    client = Client(name, tmp_path, timeout_s=1)
    over, late = Event(), Event()

    def stall(_):
        if not over.wait(90):
            late.set()

    with scripted(short_dir, **{client.surface: stall}):
        ended = client.run(str(short_dir))
        over.set()
    assert not late.is_set()
    assert ended.returncode != 0
    assert ended.stderr != ""


# --- where it looks ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "place"), [("XDG_RUNTIME_DIR", "inferd"), ("HOME", ".inferd/run")]
)
def test_without_a_directory_the_usual_places_are_tried(
    client, short_dir, variable, place
):
    (short_dir / place).mkdir(parents=True)
    with scripted(short_dir / place, **{client.surface: says(DONE)}):
        ended = client.run(environ={variable: str(short_dir)})
    assert ended.returncode == 0
    assert ended.stdout == "\n"
