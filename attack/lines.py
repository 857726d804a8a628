"""Lines of many megabytes, each large in a way of its own."""

from collections.abc import Iterator
from typing import Final

from attack.asking import Question
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET

FULL_BYTES: Final = 62_000_000
V1: Final = b'"messages":[{"role":"user","content":"x"}]'
V2: Final = b'"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]'


def filled(head: bytes, unit: bytes, tail: bytes, n_bytes: int) -> bytes:
    """Write one unit as often as fits between two ends, with commas."""
    n_units = max(1, (n_bytes - len(head) - len(tail)) // (len(unit) + 1))
    return head + b",".join([unit] * n_units) + tail + b"\n"


def numbered(head: bytes, unit: str, tail: bytes, n_bytes: int) -> bytes:
    """Write units that differ by their number."""
    n_units = max(1, n_bytes // (len(unit) + 8))
    return head + ",".join(unit % n for n in range(n_units)).encode() + tail + b"\n"


def large_lines(n_bytes: int = FULL_BYTES) -> Iterator[Question]:
    """Give a line of each kind, of about so many bytes; all are refused."""
    yield Question(
        INFER_V2_SOCKET,
        numbered(b"{" + V2 + b',"logit_bias":{', '"%07d":1.5', b"}}", n_bytes),
        "logit_bias",
    )
    yield Question(
        INFER_SOCKET,
        numbered(b'{"messages":[],', '"f%07d":[{}]', b"}", n_bytes),
        "unknown fields",
    )
    yield Question(
        INFER_SOCKET,
        filled(b'{"messages":[', b'{"role":"user","content":"x"}', b"]}", n_bytes),
        "messages",
    )
    yield Question(
        INFER_V2_SOCKET,
        filled(
            b'{"messages":[{"role":"user","content":[',
            b'{"type":"text","text":"x"}',
            b"]}]}",
            n_bytes,
        ),
        "blocks",
    )
    yield Question(
        INFER_V2_SOCKET,
        numbered(
            b"{" + V2 + b',"tools":[',
            '{"name":"%07d","description":"","input_schema":{}}',
            b',{"name":"","description":"","input_schema":{}}]}',
            n_bytes,
        ),
        "tools",
    )
    yield Question(
        EMBED_SOCKET, filled(b'{"input":[', b'"x"', b"]}", n_bytes), "inputs"
    )
    yield Question(
        INFER_V2_SOCKET,
        b'{"messages":[],"attachments":[{"kind":"image","id":"i","width":1,"height":1,'
        b'"bytes":"' + b"AAAA" * (n_bytes // 4) + b'"}]}\n',
        "attachments",
    )
    yield Question(
        INFER_SOCKET,
        b'{"type":"cancel","id":"' + b"x" * (n_bytes - 40) + b'"}\n',
        "cancels",
    )
    deep = n_bytes // 2
    yield Question(
        INFER_SOCKET,
        b'{"messages":[],"x":' + b"[" * deep + b"]" * deep + b"}\n",
        "deep nesting",
    )
    yield Question(
        INFER_SOCKET,
        b'{"messages":[],"x":"' + b"\\u00e9" * (n_bytes // 6) + b'"}\n',
        "escapes",
    )
    yield Question(
        INFER_SOCKET,
        b'{"messages":[],"x":' + b"1" * (n_bytes - 30) + b"}\n",
        "one number",
    )
    yield Question(
        INFER_SOCKET, filled(b'{"stop":[', b'"x"', b"]," + V1 + b"}", n_bytes), "stop"
    )
