"""A call whose sound is sent while its answer comes."""

import h11

from inferd.client.core.failures import ConnectionLostError, QueueFull
from inferd.client.core.live_call import LiveCall
from inferd.client.exchange import Exchange
from inferd.client.library.recordings import transcribe_request
from inferd.client.surfaces import BLOCKS

DONE = (
    b'{"type":"done","id":"r","stop_reason":"end_turn","backend":"m",'
    b'"usage":{"input_tokens":1,"output_tokens":1}}\n'
)


def call() -> tuple[LiveCall, bytes]:
    exchange: Exchange = Exchange(BLOCKS)  # type: ignore[type-arg]
    line = exchange.start(transcribe_request("r", {}))
    made = LiveCall("http://h:1/below", [(b"host", b"h:1")], exchange)
    return made, made.start(line)


def answer(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def test_a_server_reads_the_request_and_its_sound_as_they_come():
    made, begun = call()
    server = h11.Connection(h11.SERVER)
    server.receive_data(begun)
    head = server.next_event()
    assert isinstance(head, h11.Request)
    assert head.target == b"/below/inferd/live"
    server.receive_data(made.append(bytes(8)) + made.append(b"", is_last=True))
    body = b""
    while not isinstance(event := server.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        body += bytes(event.data)
    assert [line[:16] for line in body.splitlines()][1:] == [b'{"type":"append"'] * 2


def test_frames_come_in_any_cut_and_a_failure_is_typed():
    made, _ = call()
    whole = answer(b"200 OK", DONE)
    frames = [
        frame for at in range(len(whole)) for frame in made.feed(whole[at : at + 1])[0]
    ]
    assert [each.id for each in frames] == ["r"]
    assert made.is_over
    refusal = b'{"type":"error","id":"r","code":"queue_full","message":"full"}'
    made, _ = call()
    assert isinstance(made.feed(answer(b"429 No", refusal))[1], QueueFull)
    for end in (b"", b"no http\r\n\r\n"):
        made, _ = call()
        assert isinstance(made.feed(end)[1], ConnectionLostError)
