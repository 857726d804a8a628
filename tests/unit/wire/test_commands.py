import msgspec
import pytest
from msgspec import Raw

from inferd.errors import InvalidFrameError
from inferd.wire.codec import decode_command, decode_reply, encode
from inferd.wire.commands import BackendInfo, Command, Reply, RequestInfo
from tests.cases import each_case

START = '{"id":"admin","type":"reply","command":'
QUEUED = RequestInfo(
    id="r",
    socket="infer.sock",
    uid=1000,
    pid=7,
    phase="queued",
    age_ms=12.5,
    position=1,
    output_tokens=0,
)
RUNNING = RequestInfo(
    id="",
    socket="infer.v2.sock",
    uid=-1,
    pid=0,
    phase="running",
    age_ms=0.0,
    backend="chat",
    output_tokens=5,
)
REPLIES = {
    f'{START}"drain","ok":true}}': Reply(command="drain", ok=True),
    f'{START}"","ok":false,"error":"no \\"x\\""}}': Reply(
        command="", ok=False, error='no "x"'
    ),
    f'{START}"cancel","ok":true,"cancelled":1}}': Reply(
        command="cancel", ok=True, cancelled=1
    ),
    f'{START}"metrics","ok":true,"text":"# HELP\\n"}}': Reply(
        command="metrics", ok=True, text="# HELP\n"
    ),
    f'{START}"requests","ok":true,"requests":[]}}': Reply(
        command="requests", ok=True, requests=[]
    ),
    (
        f'{START}"requests","ok":true,"requests":[{{"id":"r","socket":"infer.sock",'
        '"uid":1000,"pid":7,"phase":"queued","age_ms":12.5,"position":1,'
        '"output_tokens":0},{"id":"","socket":"infer.v2.sock","uid":-1,"pid":0,'
        '"phase":"running","age_ms":0.0,"backend":"chat","output_tokens":5}]}'
    ): Reply(command="requests", ok=True, requests=[QUEUED, RUNNING]),
    (
        f'{START}"backends","ok":true,"backends":[{{"name":"chat","ready":true,'
        '"capabilities":{"v2":true}},{"name":"b","ready":false,'
        '"unavailable":"broken","capabilities":{}}]}'
    ): Reply(
        command="backends",
        ok=True,
        backends=[
            BackendInfo(name="chat", ready=True, capabilities=Raw(b'{"v2":true}')),
            BackendInfo(
                name="b", ready=False, unavailable="broken", capabilities=Raw(b"{}")
            ),
        ],
    ),
}


@each_case("line", REPLIES)
def test_a_reply_is_these_bytes(line):
    assert encode(REPLIES[line]) == line.encode() + b"\n"
    assert decode_reply(line.encode()) == REPLIES[line]


def test_a_command_is_these_bytes():
    assert encode(Command(command="metrics")) == b'{"command":"metrics","id":null}\n'
    assert encode(Command(command="cancel", id="r")) == (
        b'{"command":"cancel","id":"r"}\n'
    )


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b'{"command":"drain","command":"requests"}', "command"),
        (b'{"command":"cancel","id":"a","id":"b"}', "id"),
    ],
)
def test_a_command_that_says_a_thing_twice_is_none(line, field):
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_command(line)


@pytest.mark.parametrize("phase", ["ready", "", None])
def test_a_request_waits_or_runs(phase):
    fields = {**msgspec.to_builtins(QUEUED), "phase": phase}
    with pytest.raises(msgspec.ValidationError, match="phase"):
        msgspec.convert(fields, RequestInfo)
