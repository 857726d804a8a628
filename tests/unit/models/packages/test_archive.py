import io
import stat
import struct
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from inferd.models.packages import archive
from inferd.models.packages.archive import Archive, ArchiveError
from tests.cases import each_case

DATA = bytes(range(256)) * 40


def zipped(*members, method=zipfile.ZIP_DEFLATED):
    """An archive with members, each a name or an entry and its content."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, data in members:
            target.writestr(name, data)
    return file


def read(file, pattern="*m.gguf*"):
    return b"".join(Archive(file).read(pattern))


def entry(name, mode):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_is_read_whole(method):
    file = zipped(("a/m.gguf", DATA), ("a/n.gguf", b"n"), method=method)
    assert read(file, "a/m.gguf") == DATA
    assert read(file, "a/*.gguf") == DATA + b"n"


def test_parts_are_read_by_their_numbers():
    numbers = (10, 2, 1, 11)
    file = zipped(*((f"m.gguf.part{n}", f"{n},".encode()) for n in numbers))
    assert read(file) == b"1,2,10,11,"
    file = zipped(("m.gguf1\u00b22", b"2"), ("m.gguf1\u00b21", b"1"))
    assert read(file) == b"12"  # what int() cannot read is no number


@each_case(
    "name",
    ["../m.gguf", "a/../m.gguf", "/m.gguf", "./m.gguf", "a//m.gguf", "a\\m.gguf"],
)
def test_a_path_that_leads_elsewhere_is_refused(name):
    with pytest.raises(ArchiveError, match="is not the path of a member"):
        read(zipped((name, DATA)))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_member_that_is_a_link_or_a_device_is_refused(kind):
    with pytest.raises(ArchiveError, match="m.gguf is not a regular file"):
        read(zipped((entry("m.gguf", kind | 0o644), b"/etc/passwd")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(ArchiveError, match="it has m.gguf more than once"):
        read(zipped(("m.gguf", DATA), ("m.gguf", b"other")))


def test_a_member_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(ArchiveError, match=r"it has no x; it has: a, b, c, d, e, …$"):
        read(zipped(*((name, b"") for name in "abcdef")), "x")


def test_directories_are_no_members():
    with pytest.raises(ArchiveError, match="it has no"):
        read(zipped(("m.gguf/", b"")))


def test_a_list_of_entries_is_bounded(monkeypatch):
    monkeypatch.setattr(archive, "PACKAGE_MAX_ENTRIES", 5)
    with pytest.raises(ArchiveError, match="it has 6 entries; allowed: 5"):
        read(zipped(*((name, b"") for name in "abcdef")))


def test_the_number_of_parts_is_bounded(monkeypatch):
    monkeypatch.setattr(archive, "PACKAGE_MAX_MEMBERS", 2)
    with pytest.raises(ArchiveError, match=r"3 members fit m\*; allowed: 2"):
        read(zipped(("m1", b""), ("m2", b""), ("m3", b"")), "m*")


def test_a_member_that_grows_too_much_is_refused_before_it_is_whole():
    n_read = 0
    with pytest.raises(ArchiveError, match="over 100 times the bytes that it takes"):
        for block in Archive(zipped(("m.gguf", bytes(10**8)))).read("m.gguf"):
            n_read += len(block)
    assert n_read < 2 * 10**7


def test_a_member_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(archive, "PACKAGE_MAX_BYTES", len(DATA) - 1)
    with pytest.raises(ArchiveError, match=f"m.gguf has {len(DATA)} bytes"):
        read(zipped(("m.gguf", DATA)))


def test_a_member_that_says_that_it_is_short_is_not_read_on(monkeypatch):
    data = zipped(("m.gguf", DATA), method=zipfile.ZIP_STORED).getvalue()
    said = struct.pack("<LL", len(DATA), len(DATA))
    assert data.count(said) == 2
    short = data.replace(said, struct.pack("<LL", len(DATA), 100))
    with pytest.raises(ArchiveError, match="m.gguf is damaged"):
        read(io.BytesIO(short))


def test_members_that_share_their_bytes_are_refused():
    data = zipped(("m.gguf1", DATA), ("m.gguf2", b""), method=0).getvalue()
    directory = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", directory + 4)
    overlapping = (
        data[: second + 16]
        + data[directory + 16 : directory + 28]  # digest and sizes of the first
        + data[second + 28 : second + 42]
        + data[directory + 42 : directory + 46]  # and its place
        + data[second + 46 :]
    )
    with pytest.raises(ArchiveError, match="overlap each other|is damaged"):
        read(io.BytesIO(overlapping))


@each_case("data", [b"", b"<html>", b"PK\5\6" + bytes(18), DATA])
def test_a_file_that_is_no_archive_is_refused(data):
    with pytest.raises(ArchiveError):
        read(io.BytesIO(data))


@given(st.data())
def test_an_archive_with_a_changed_byte_is_read_as_it_was_or_refused(data):
    octets = bytearray(zipped(("a/m.gguf", DATA), ("b", b"b")).getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(octets) - 1))
        octets[place] = data.draw(st.integers(0, 255))
    with suppress(ArchiveError):
        assert read(io.BytesIO(octets), "a/m.gguf") == DATA
