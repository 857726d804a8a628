import msgspec
import pytest

from inferd.wire.codec import decode_status, encode
from inferd.wire.status import AnyStatus, CapabilitiesFrame, LifecycleFrame
from tests.cases import each_case

LOADING = LifecycleFrame(
    status="loading_model", phase="mmap", backend="chat", path="/m.gguf"
)
RESTARTING = LifecycleFrame(
    status="restarting",
    phase="backoff",
    backend="chat",
    reason="killed by SIGKILL",
    retry_in_s=0.1,
)
CAPABILITIES = CapabilitiesFrame(
    backend="chat",
    v2=False,
    vision=False,
    audio=False,
    tools=True,
    thinking=False,
    embed=False,
    generate=True,
    rerank=False,
    accelerator="cpu",
    gpu_layers=0,
    wire_version=1,
    n_ctx=8192,
    model="tiny",
    daemon_version="1.2.3",
)


@each_case(
    ("frame", "line"),
    [
        (
            LifecycleFrame(status="ready"),
            '{"id":"admin","type":"status","status":"ready"}\n',
        ),
        (
            LOADING,
            (
                '{"id":"admin","type":"status","status":"loading_model",'
                '"phase":"mmap","backend":"chat","path":"/m.gguf"}\n'
            ),
        ),
        (
            RESTARTING,
            (
                '{"id":"admin","type":"status","status":"restarting",'
                '"phase":"backoff","backend":"chat","reason":"killed by SIGKILL",'
                '"retry_in_s":0.1}\n'
            ),
        ),
        (
            CAPABILITIES,
            (
                '{"id":"admin","type":"status","status":"capabilities",'
                '"backend":"chat","v2":false,"vision":false,"audio":false,'
                '"tools":true,"thinking":false,"embed":false,"generate":true,'
                '"rerank":false,"accelerator":"cpu","gpu_layers":0,'
                '"wire_version":1,"n_ctx":8192,"model":"tiny",'
                '"structure":false,"daemon_version":"1.2.3"}\n'
            ),
        ),
    ],
    ids=["ready", "loading", "restarting", "capabilities"],
)
def test_a_status_is_these_bytes(frame, line):
    assert encode(frame) == line.encode()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b'{"status":"asleep"}', AnyStatus(status="asleep")),
        (
            b'{"status":"loading_model","phase":"dreaming","depth":[1,{}]}',
            AnyStatus(status="loading_model", phase="dreaming"),
        ),
        (
            b'{"id":"other","type":"news","status":"ready","reason":null}',
            AnyStatus(status="ready"),
        ),
    ],
)
def test_a_listener_ignores_what_it_does_not_know(line, status):
    assert decode_status(line) == status


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        (
            RESTARTING,
            AnyStatus(
                status="restarting",
                phase="backoff",
                backend="chat",
                reason="killed by SIGKILL",
            ),
        ),
        (
            CAPABILITIES,
            AnyStatus(status="capabilities", backend="chat", daemon_version="1.2.3"),
        ),
    ],
    ids=["lifecycle", "capabilities"],
)
def test_a_listener_reads_what_a_daemon_writes(frame, status):
    assert decode_status(encode(frame)) == status


def test_an_unknown_status_is_not_ours_to_send():
    with pytest.raises(msgspec.ValidationError, match="status"):
        msgspec.convert({"status": "asleep"}, LifecycleFrame)
