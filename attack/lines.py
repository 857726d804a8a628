"""Lines of many megabytes, each large in a way of its own."""

from collections.abc import Iterator
from typing import Final

from attack.asking import Question
from inferd import surfaces

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
        surfaces.V2.socket,
        numbered(b"{" + V2 + b',"logit_bias":{', '"%07d":1.5', b"}}", n_bytes),
        "logit_bias",
    )
    yield Question(
        surfaces.INFER.socket,
        numbered(b'{"messages":[],', '"f%07d":[{}]', b"}", n_bytes),
        "unknown fields",
    )
    yield Question(
        surfaces.INFER.socket,
        filled(b'{"messages":[', b'{"role":"user","content":"x"}', b"]}", n_bytes),
        "messages",
    )
    yield Question(
        surfaces.V2.socket,
        filled(
            b'{"messages":[{"role":"user","content":[',
            b'{"type":"text","text":"x"}',
            b"]}]}",
            n_bytes,
        ),
        "blocks",
    )
    yield Question(
        surfaces.V2.socket,
        numbered(
            b"{" + V2 + b',"tools":[',
            '{"name":"%07d","description":"","input_schema":{}}',
            b',{"name":"","description":"","input_schema":{}}]}',
            n_bytes,
        ),
        "tools",
    )
    yield Question(
        surfaces.EMBED.socket, filled(b'{"input":[', b'"x"', b"]}", n_bytes), "inputs"
    )
    yield Question(
        surfaces.V2.socket,
        b'{"messages":[],"attachments":[{"kind":"image","id":"i","width":1,"height":1,'
        b'"bytes":"' + b"AAAA" * (n_bytes // 4) + b'"}]}\n',
        "attachments",
    )
    yield Question(
        surfaces.INFER.socket,
        b'{"type":"cancel","id":"' + b"x" * (n_bytes - 40) + b'"}\n',
        "cancels",
    )
    deep = n_bytes // 2
    yield Question(
        surfaces.INFER.socket,
        b'{"messages":[],"x":' + b"[" * deep + b"]" * deep + b"}\n",
        "deep nesting",
    )
    yield Question(
        surfaces.INFER.socket,
        b'{"messages":[],"x":"' + b"\\u00e9" * (n_bytes // 6) + b'"}\n',
        "escapes",
    )
    yield Question(
        surfaces.INFER.socket,
        b'{"messages":[],"x":' + b"1" * (n_bytes - 30) + b"}\n",
        "one number",
    )
    yield Question(
        surfaces.INFER.socket,
        filled(b'{"stop":[', b'"x"', b"]," + V1 + b"}", n_bytes),
        "stop",
    )
