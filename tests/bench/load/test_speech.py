import json

import msgspec
import pytest

from bench.load.recording import Recording
from bench.load.scene import Ask
from bench.load.speech import Bridge, Daemon, Http, ServerError, speech
from inferd.bridge.openai.chat_request import ask_chat
from inferd.bridge.translation.question import Asked
from inferd.client.exchange import RequestFailedError
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import decode_blocks
from tests.cases import each_case

ASK = Ask(turns=[("user", "hello")], max_tokens=3)
HELD = Ask(turns=[("user", "hello")], max_tokens=3, schema={"type": "integer"})
FRAME = '{{"type":"frame","id":"bench","block":{{"type":"text","delta":"{}"}}}}\n'
DONE = (
    '{"type":"done","id":"bench","usage":{"input_tokens":9,"output_tokens":3,'
    '"cached_tokens":4},"stop_reason":"max_tokens","backend":"chat"}\n'
)
OK = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = "data: [DONE]\n\n"


def event(text=None, **more):
    choices = [{"delta": {"content": text}}]
    return "data: " + json.dumps({"choices": choices, **more}) + "\n\n"


def recorded(*reads):
    recording = Recording()
    for moment, data in enumerate(reads):
        recording.add(data.encode(), float(moment))
    return recording


def test_the_daemon_is_asked_for_exactly_so_many_likeliest_tokens():
    request = decode_blocks(Daemon("/run").request(ASK).rstrip(b"\n"))
    assert (request.temperature, request.min_tokens, request.max_tokens) == (0, 3, 3)


def test_the_daemon_is_asked_for_what_follows_a_schema():
    request = decode_blocks(Daemon("/run").request(HELD).rstrip(b"\n"))
    assert msgspec.json.encode(request.response_format) == (
        b'{"type":"json_schema","schema":{"type": "integer"},"pattern":null,"grammar":null}'
    )


@pytest.mark.parametrize("ask", [ASK, HELD], ids=["free", "held"])
def test_the_bridge_takes_all_that_it_is_asked_and_makes_the_same_request_of_it(ask):
    _, _, body = Bridge("127.0.0.1:1").request(ask).partition(b"\r\n\r\n")
    asked = Asked(request_id="r", created_s=0, default_max_tokens=9)
    through = ask_chat(body, asked).request
    direct = decode_blocks(Daemon("/run").request(ask).rstrip(b"\n"))
    assert isinstance(through, BlocksRequest)
    for name in ("messages", "temperature", "min_tokens", "max_tokens"):
        assert getattr(through, name) == getattr(direct, name)
    assert (through.response_format is None) == (direct.response_format is None)


def test_frames_are_pieces_with_the_moment_of_their_last_byte():
    frame = FRAME.format("lamp")
    recording = recorded(FRAME.format("a ") + frame[:9], frame[9:], DONE)
    answer = Daemon("/run").answer(recording)
    assert (answer.text, answer.times, answer.lengths) == ("a lamp", [0.0, 1.0], [2, 4])
    assert (answer.n_prompt, answer.n_cached, answer.n_tokens) == (9, 4, 3)


def test_an_answer_that_nobody_awaited_has_the_tokens_that_came():
    answer = Daemon("/run").answer(recorded(FRAME.format("a"), FRAME.format("b")[:20]))
    assert (answer.text, answer.n_tokens) == ("a", 1)


def test_an_error_of_the_daemon_is_one():
    error = '{"type":"error","id":"bench","code":"queue_full","message":"full"}\n'
    assert Daemon("/run").is_over(error.encode())
    with pytest.raises(RequestFailedError, match="full"):
        Daemon("/run").answer(recorded(error))


@each_case("n_bytes", range(len(DONE)))
def test_an_answer_is_over_with_its_last_frame_and_not_before(n_bytes):
    text = FRAME.format("a") + DONE
    cut = text[: len(text) - len(DONE) + n_bytes]
    assert not Daemon("/run").is_over(cut.encode())
    assert Daemon("/run").is_over(text.encode())


def test_a_peer_is_asked_for_the_same():
    head, body = Http("127.0.0.1:80").request(HELD).split(b"\r\n\r\n")
    asked = json.loads(body)
    assert f"Content-Length: {len(body)}".encode() in head
    assert asked["messages"] == [{"role": "user", "content": "hello"}]
    assert asked["response_format"]["json_schema"]["schema"] == {"type": "integer"}
    assert (asked["temperature"], asked["max_tokens"], asked["stream"]) == (0, 3, True)
    assert asked["ignore_eos"]


def test_events_are_pieces_and_those_without_text_are_none():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    recording = recorded(
        OK + event(), event("a ") + event("lamp"), event(usage=usage) + LAST
    )
    answer = Http("127.0.0.1:80").answer(recording)
    assert (answer.text, answer.times) == ("a lamp", [1.0, 1.0])
    assert (answer.n_prompt, answer.n_cached, answer.n_tokens) == (9, 4, 3)


def test_a_peer_that_tells_no_usage_has_written_its_pieces():
    answer = Http("127.0.0.1:80").answer(recorded(OK, event("a"), event("b"), LAST))
    assert (answer.n_tokens, answer.n_prompt) == (2, 0)


@pytest.mark.parametrize(
    "answer", ["HTTP/1.1 400 Bad Request\r\n\r\nno", OK + 'data: {"error": "no"}\n\n']
)
def test_a_peers_error_is_one(answer):
    with pytest.raises(ServerError, match="no"):
        Http("127.0.0.1:80").answer(recorded(answer))


def test_a_side_is_spoken_to_in_its_own_way():
    assert isinstance(speech("inferd", "/run"), Daemon)
    assert isinstance(speech("http", "127.0.0.1:80"), Http)
