"""Downloads from a server on loopback that does what it should, or not."""

import os
from types import SimpleNamespace

import pytest

from inferd.limits.models import STORE_FREE_BYTES
from inferd.models.pull.download import DownloadBounds, WantedFile, download, has_file
from inferd.models.pull.errors import DroppedError, PullError, StalledError
from inferd.models.pull.messages import Head
from inferd.models.store.blobs import DigestError, PartialFile
from inferd.models.store.directory import BLOBS, PARTIAL, QUARANTINE, StoreError
from tests.fakes.hub import BLOCK_BYTES, Behaviour

pytestmark = pytest.mark.slow  # a process, a server

MODEL = b"GGUF" + bytes(range(256)) * 1_000
OTHER = b"GGUF" + bytes(range(255)) * 1_000
PATH = "/x/m.gguf"
BOUNDS = DownloadBounds()
TOKEN = "secret"
SHORT_S = 0.05
"""Seconds until a server that sends nothing more counts as stalled."""


@pytest.fixture
def get(hub, shared, store):
    """Download the model, and return what its progress was."""
    sha256 = hub.add(PATH, MODEL)

    def run(bounds=BOUNDS, path=PATH, n_bytes=None, downloader=shared, **fields):
        seen = []
        wanted = WantedFile("m.gguf", hub.url(path), sha256, n_bytes, **fields)
        download(
            store.directory,
            downloader,
            wanted,
            lambda *done: seen.append(done),
            bounds,
        )
        assert has_file(store.directory, wanted)
        assert store.directory.names(PARTIAL) == []
        assert store.directory.path_of(BLOBS, sha256).read_bytes() == MODEL
        return seen

    return run


def begun(store):
    """Bytes of the partial file, which has a record beside it."""
    first, second = store.directory.names(PARTIAL)
    assert second == f"{first}.json"
    assert store.directory.names(BLOBS) == []
    return store.directory.status(PARTIAL, first).st_size


def ranges(hub):
    return [asked.headers.get("Range", "") for asked in hub.asked]


def test_a_file_comes_with_its_progress(get, hub):
    seen = get()
    assert seen[0] == (0, len(MODEL))
    assert seen[-1] == (len(MODEL), len(MODEL))
    assert ranges(hub) == [""]


def test_an_interrupted_download_goes_on_where_it_stopped(get, hub, store):
    hub.behaviours[PATH] = Behaviour(sends=100_000, n_times=1)
    with pytest.raises(DroppedError, match="ended the connection") as raised:
        get()
    assert "type the same command again" in raised.value.hint
    n_bytes = begun(store)
    assert 0 < n_bytes <= 100_000
    assert get()[0] == (n_bytes, len(MODEL))
    assert ranges(hub) == ["", f"bytes={n_bytes}-"]
    assert hub.asked[1].headers["If-Range"].startswith('"')


def test_a_server_that_cannot_resume_sends_all(get, hub, store):
    hub.behaviours[PATH] = Behaviour(sends=100_000, n_times=1)
    with pytest.raises(DroppedError):
        get()
    hub.behaviours[PATH] = Behaviour(has_ranges=False)
    assert get()[0] == (0, len(MODEL))


def test_bytes_of_another_file_are_not_kept(get, hub, store):
    """The server had another file: an interrupted download of it is begun anew."""
    hub.files[PATH] = OTHER
    hub.behaviours[PATH] = Behaviour(sends=100_000, n_times=1)
    with pytest.raises(DroppedError):
        get()
    assert begun(store)
    hub.files[PATH] = MODEL
    assert get()[0] == (0, len(MODEL))


def test_bytes_of_another_file_that_has_no_etag_are_found_at_the_end(get, hub, store):
    hub.files[PATH] = OTHER
    hub.behaviours[PATH] = Behaviour(sends=100_000, headers={"ETag": "W/x"}, n_times=1)
    with pytest.raises(DroppedError):
        get()
    n_bytes = begun(store)
    hub.files[PATH] = MODEL
    get()
    assert ranges(hub) == ["", f"bytes={n_bytes}-", ""]


def test_another_address_goes_on_as_well(get, hub, store):
    hub.behaviours[PATH] = Behaviour(sends=100_000, n_times=1)
    with pytest.raises(DroppedError):
        get()
    hub.add("/mirror.gguf", MODEL)
    get(path="/mirror.gguf")
    assert "If-Range" not in hub.asked[1].headers
    assert ranges(hub)[1] != ""


@pytest.mark.parametrize("n_more", [0, 5])
def test_a_partial_file_that_is_long_enough_is_checked(get, hub, store, n_more):
    sha256 = hub.add(PATH, MODEL)
    with PartialFile(store.directory, f"pull-{sha256}") as partial:
        partial.write(MODEL + b"!" * n_more)
    get(n_bytes=len(MODEL))
    assert len(hub.asked) == (2 if n_more else 0)  # 416, and then all


def test_what_is_in_the_store_is_known(get, store):
    get()
    [sha256] = store.directory.names(BLOBS)
    for n_bytes, is_there in ((None, True), (len(MODEL), True), (7, False)):
        assert (
            has_file(store.directory, WantedFile("m", "", sha256, n_bytes)) == is_there
        )
    assert not has_file(store.directory, WantedFile("m", "", "0" * 64))


def test_a_connection_that_drops_late_is_followed_by_another(get, hub, store):
    hub.behaviours[PATH] = Behaviour(sends=4 * BLOCK_BYTES)
    get(DownloadBounds(retry_bytes=1))
    assert len(hub.asked) == -(-len(MODEL) // (4 * BLOCK_BYTES))


def test_the_connections_of_one_download_are_counted(get, hub, monkeypatch):
    monkeypatch.setattr("inferd.models.pull.download.PULL_MAX_CONNECTIONS", 3)
    hub.behaviours[PATH] = Behaviour(sends=BLOCK_BYTES, has_ranges=False)
    with pytest.raises(DroppedError, match="ended 3 connections"):
        get(DownloadBounds(retry_bytes=0))
    assert len(hub.asked) == 3


# --- servers that do what they should not ----------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        (Behaviour(status=404), "answers: 404", "check the address"),
        (Behaviour(status=403), "answers: 403", "model import FILE"),
        (Behaviour(status=418), "answers: 418", "check the address"),
        (Behaviour(status=429), "answers: 429", "later"),
        (Behaviour(status=503), "answers: 503", "later"),
        (
            Behaviour(headers={"Content-Type": "text/html; x"}),
            "sends a web page",
            "file",
        ),
        (Behaviour(headers={"Content-Encoding": "gzip"}), "encoded as gzip", ""),
        (
            Behaviour(redirect="http://localhost/m"),
            "http://localhost, not enc",
            "where",
        ),
        (Behaviour(redirect=PATH), "redirects to over 5 addresses", "where the file"),
        (Behaviour(sends=0), "ended the connection", "same command"),
        (Behaviour(headers={"Content-Length": "9" * 15}), "bytes free, and", ""),
    ],
)
def test_a_server_that_sends_no_file_is_told_as_what_it_is(get, hub, store, case):
    hub.behaviours[PATH], words, hint = case
    with pytest.raises((PullError, StoreError), match=words) as raised:
        get()
    assert hint in getattr(raised.value, "hint", "")
    assert store.directory.names(BLOBS) == []
    hub.behaviours.clear()
    get()


def test_a_response_that_is_longer_than_announced_ends_where_it_should(get, hub):
    hub.behaviours[PATH] = Behaviour(headers={"Content-Length": "1000"}, n_times=1)
    with pytest.raises(DigestError, match="SHA-256"):
        get()
    get()


def test_a_response_that_is_shorter_than_announced_is_not_complete(get, hub, store):
    length = str(len(MODEL) + 5)
    n_bytes = len(MODEL) - 1
    hub.behaviours[PATH] = Behaviour(headers={"Content-Length": length}, sends=n_bytes)
    with pytest.raises(DroppedError):
        get()
    assert begun(store) == n_bytes
    hub.behaviours.clear()
    get()


@pytest.mark.parametrize("n_kept", [0, len(MODEL)])
def test_a_whole_file_is_taken_though_its_server_announces_more(
    get, hub, store, n_kept
):
    length = str(len(MODEL) + 5)
    hub.behaviours[PATH] = Behaviour(headers={"Content-Length": length}, sends=10**9)
    with PartialFile(store.directory, f"pull-{hub.add(PATH, MODEL)}") as kept:
        kept.write(MODEL[:n_kept])
    get()


def test_another_length_than_the_hub_states_is_refused_before_the_first_byte(
    get, store
):
    with pytest.raises(PullError, match=f"has {len(MODEL)} bytes.* the hub states 7"):
        get(n_bytes=7)
    assert (
        store.directory.status(PARTIAL, store.directory.names(PARTIAL)[0]).st_size == 0
    )
    get()


def test_other_bytes_go_to_the_quarantine(get, hub, store):
    hub.files[PATH] = OTHER
    with pytest.raises(DigestError, match="expected"):
        get()
    assert len(store.directory.names(QUARANTINE)) == 1
    assert store.directory.names(PARTIAL) == []
    hub.files[PATH] = MODEL
    get()


@pytest.mark.parametrize("data", [b"<html>" * 1000, b"PK\3\4" * 1000, b"GG"])
def test_what_begins_like_no_model_is_refused_at_its_first_bytes(get, hub, store, data):
    hub.files[PATH] = data
    with pytest.raises(PullError, match="model"):
        get()
    assert begun(store) == 0
    hub.files[PATH] = MODEL
    get()


def test_a_length_that_nobody_states_is_bounded(get, hub, store):
    hub.behaviours[PATH] = Behaviour(has_length=False)
    with pytest.raises(PullError, match="more than 1000 bytes") as raised:
        get(DownloadBounds(max_bytes=1000))
    assert "--max-bytes" in raised.value.hint
    get()


def test_a_length_that_nobody_states_leaves_the_file_system_its_space(
    get, hub, store, monkeypatch
):
    hub.behaviours[PATH] = Behaviour(has_length=False)
    free = STORE_FREE_BYTES + 10
    monkeypatch.setattr(type(store.directory), "free_bytes", lambda _: free)
    with pytest.raises(StoreError, match="bytes free, and"):
        get()


@pytest.mark.parametrize("n_bytes", [0, 1, 50_000])
def test_a_server_that_stalls_is_given_up(get, hub, store, downloader, n_bytes):
    hub.behaviours[PATH] = Behaviour(sends=n_bytes, then="stall")
    with pytest.raises(
        StalledError, match="localhost sent nothing for 0.05 s"
    ) as raised:
        bounds = DownloadBounds(stall_s=SHORT_S, stall_bytes=0)
        get(bounds, downloader=downloader)
    assert "type the same command again" in raised.value.hint
    hub.behaviours.clear()
    assert begun(store) <= n_bytes


class Trickle:
    """A downloader that brings few bytes each second of a clock."""

    def __init__(self, n_bytes):
        self.now = 0.0
        self._n_bytes = n_bytes

    def send(self, _):
        self.now = 0.0

    def receive(self, _):
        self.now += 1.0
        if self.now == 1.0:
            return Head(offset=0)
        return b"GGUF" + b"w" * (self._n_bytes - 4)


@pytest.mark.parametrize("case", [(9, StalledError), (10, PullError)])
def test_a_server_that_trickles_is_given_up(get, store, monkeypatch, case):
    """Ten bytes a second are enough, and go on until there are too many."""
    n_bytes, error = case
    trickle = Trickle(n_bytes)
    clock = SimpleNamespace(monotonic=lambda: trickle.now)
    monkeypatch.setattr("inferd.models.pull.download.time", clock)
    bounds = DownloadBounds(stall_s=60.0, stall_bytes=600, max_bytes=5_000)
    with pytest.raises(PullError) as raised:
        get(bounds, downloader=trickle)
    assert type(raised.value) is error
    monkeypatch.undo()
    begun(store)
    get()


def test_a_redirect_to_another_host_is_followed_to_what_is_pinned(get, hub):
    hub.add("/cdn.gguf", MODEL)
    hub.behaviours[PATH] = Behaviour(redirect=hub.url("/cdn.gguf", host="127.0.0.1"))
    get(token=TOKEN)
    assert [asked.headers.get("Authorization") for asked in hub.asked] == [
        f"Bearer {TOKEN}",
        None,
    ]


def test_a_host_that_is_not_there_is_told(get, shared, store):
    wanted = WantedFile("m", "https://localhost:1/m.gguf", "0" * 64)
    with pytest.raises(PullError, match="localhost cannot be reached: .*refused"):
        download(store.directory, shared, wanted, lambda *_: None, BOUNDS)


def test_a_certificate_of_somebody_else_is_refused(get, hub, store):
    from inferd.models.pull.process import Downloader  # noqa: PLC0415

    wanted = WantedFile("m", hub.url(PATH), "0" * 64)
    with Downloader(os.environ) as downloader, pytest.raises(PullError) as raised:
        download(store.directory, downloader, wanted, lambda *_: None, BOUNDS)
    assert "the certificate of localhost is not accepted" in raised.value.text
    assert "--ca-file" in raised.value.hint


# --- the store --------------------------------------------------------------------------


def test_two_downloads_of_one_file_are_not_made(get, hub, store):
    sha256 = hub.add(PATH, MODEL)
    with (
        PartialFile(store.directory, f"pull-{sha256}"),
        pytest.raises(StoreError, match="another command is writing this file"),
    ):
        get()
    get()


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"url": 7}', b"\xff"])
def test_half_a_record_is_none(get, hub, store, record):
    hub.behaviours[PATH] = Behaviour(sends=100_000, n_times=1)
    with pytest.raises(DroppedError):
        get()
    path = store.directory.path_of(PARTIAL, store.directory.names(PARTIAL)[1])
    path.write_bytes(record)
    get()
    assert "If-Range" not in hub.asked[1].headers
