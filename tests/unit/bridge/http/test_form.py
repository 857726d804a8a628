"""Bodies of forms: what clients write, in any pieces, and what attackers do."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from inferd.bridge.http.form import FormParser
from inferd.bridge.recordings.form import Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import (
    BOUNDARY_CHARS,
    FORM_FIELD_BYTES,
    MAX_FORM_PARTS,
    PART_HEADER_BYTES,
)
from tests.cases import each_case

BOUNDARY = "b0"
KIND = f'Multipart/Form-Data; charset=utf-8; boundary="{BOUNDARY}"'
NAMES = st.from_regex(r"[a-z_]{1,8}(\[\])?", fullmatch=True).filter(
    lambda name: name != "file"
)


def part(name: str, content: bytes, head: str = "") -> bytes:
    return (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{head}\r\n\r\n'
    ).encode() + content + b"\r\n"  # fmt: skip


FILE = part("file", b"sound", '; filename="a.wav"\r\nContent-Type: audio/wav')
END = f"--{BOUNDARY}--\r\n".encode()


def parse(body: bytes, cuts: Iterable[int] = (), kind: str = KIND) -> Form:
    parser = FormParser(kind)
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in pairwise(places):
        parser.feed(body[start:end])
    return parser.end()


@given(
    st.lists(st.tuples(NAMES, st.text(max_size=20)), max_size=5),
    st.binary(min_size=1, max_size=200).filter(lambda it: BOUNDARY.encode() not in it),
    st.integers(0, 5),
    st.lists(st.integers(min_value=0), max_size=8),
)
def test_a_form_is_read_as_it_was_written_in_whatever_pieces(fields, file, at, cuts):
    parts = [part(name, text.encode()) for name, text in fields]
    parts.insert(at, part("file", file, '; filename="x"'))
    found = parse(b"".join([*parts, END]), cuts)
    assert list(found.fields) == fields
    assert found.file == file


@each_case(
    ("kind", "words"),
    [
        ("application/json", "multipart/form-data"),
        ("", "multipart/form-data"),
        ("multipart/form-data", "boundary"),
        ('multipart/form-data; boundary=""', "boundary"),
        (f"multipart/form-data; boundary={'b' * (BOUNDARY_CHARS + 1)}", "boundary"),
        ("multipart/form-data; boundary=ä", "boundary"),
    ],
)
def test_bodies_that_are_no_forms_are_refused(kind, words):
    with pytest.raises(BridgeError, match=words) as caught:
        FormParser(kind)
    assert caught.value.reason is Reason.INVALID_REQUEST


@each_case(
    ("body", "param"),
    [
        (b"", None),
        (b"no form", None),
        (END, "file"),
        (part("model", b"m") + END, "file"),
        (part("file", b"") + END, "file"),
        (FILE, None),
        (FILE + b"--b0-", None),
        (FILE[:-4], None),
        (FILE + FILE + END, "file"),
        (FILE + part("prompt", b"\xff") + END, "prompt"),
        (FILE + part("prompt", b"x" * (FORM_FIELD_BYTES + 1)) + END, "prompt"),
        (FILE + part("p" * PART_HEADER_BYTES, b"x") + END, None),
        (FILE + part("p", b"x", "\r\nA: b" * 9) + END, None),
        (part("p", b"x") * MAX_FORM_PARTS + FILE + END, None),
        (b"--b0\r\nContent-Type: text/plain\r\n\r\nx\r\n" + END, None),
        (b"--b0\r\nContent-Disposition: attachment\r\n\r\nx\r\n" + END, None),
        (part("p", b"x", "\r\nContent-Type: text/plain; charset=utf-16") + END, "p"),
        (part("p", b"x", "\r\nContent-Transfer-Encoding: base64") + END, "p"),
        (part("p", b"x", "\r\nContent-Type: multipart/mixed; boundary=c") + END, "p"),
        (b"--b0\r\nA: " + b"x" * 100_000, None),
        (b"--b0\nContent-Disposition: form-data; name=file\n\nx\n--b0--\n", None),
    ],
)
def test_a_hostile_or_broken_form_is_refused(body, param):
    with pytest.raises(BridgeError) as caught:
        parse(body, range(0, len(body), 1000))
    assert (caught.value.reason, caught.value.param) == (
        Reason.INVALID_REQUEST,
        param,
    )
    assert len(str(caught.value)) < 1000


HEADS = st.lists(
    st.sampled_from([
        *(b"--b0", b"--b0--", b"\r\n", b"\n", b" ", b":", b";", b"=", b'"', b"\\", b"\xff"),
        *(b"Content-Disposition: form-data", b"name", b"filename*", b"%22", b"Content-Length: 1"),
        *(b"Content-Type: text/plain", b"charset", b"utf-8'en'x"),
    ]) | st.binary(max_size=4),
    max_size=30,
)  # fmt: skip


@given(HEADS, st.lists(st.integers(min_value=0), max_size=4))
def test_nothing_but_a_typed_failure_comes_of_any_bytes(pieces, cuts):
    with suppress(BridgeError):
        parse(b"--b0\r\n" + b"".join(pieces), cuts)
