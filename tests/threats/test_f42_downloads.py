"""A server, or a downloader that it has taken over, gets nothing into the store."""

import os
from pathlib import Path

import pytest

from inferd.models.pull import process
from inferd.models.pull.download import DownloadBounds, WantedFile, download
from inferd.models.pull.errors import PullError
from inferd.models.pull.process import Downloader
from inferd.models.pull.pull import PullOptions, plan_pull
from inferd.models.pull.source import parse_source
from inferd.models.store.directory import BLOBS, StoreError
from tests.fakes import hostile_downloader
from tests.fakes.hostile_downloader import CASES, LISTINGS, SHA256, URL
from tests.fakes.in_downloader import try_in_downloader
from tests.unit.models.store.stores import add_model, assert_whole, open_store

OURS = b"GGUF ours"


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "models")
    with store.directory:
        add_model(store, "ours", OURS)
        before = store.directory.names(BLOBS)
        yield store
        assert store.directory.names(BLOBS) == before
        assert store.names() == ["ours"]
        assert_whole(store)


@pytest.fixture
def hostile(monkeypatch):
    def start(case):
        script = str(Path(hostile_downloader.__file__))
        monkeypatch.setattr(process, "PROGRAM", ("-I", script, case))
        return Downloader({})

    return start


@pytest.mark.parametrize("case", CASES)
def test_a_downloader_that_was_taken_over_brings_no_file(store, hostile, case):
    wanted = WantedFile("m.gguf", URL, SHA256)
    with hostile(case) as downloader, pytest.raises((PullError, StoreError)) as raised:
        download(store.directory, downloader, wanted, lambda *_: None, DownloadBounds())
    assert "\n" not in str(raised.value)
    assert "curl" not in getattr(raised.value, "hint", "")


@pytest.mark.parametrize("case", LISTINGS)
def test_a_downloader_that_was_taken_over_names_no_file(store, hostile, case):
    source = parse_source("hf:a/b")
    with hostile(case) as downloader, pytest.raises(PullError):
        plan_pull(store, downloader, source, PullOptions())


def test_a_token_is_in_nobody_s_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    with Downloader(os.environ) as downloader:
        environ = Path(f"/proc/{downloader.pid}/environ").read_bytes()
        assert b"HF_HUB_DISABLE_TELEMETRY=1" in environ
        assert b"secret" not in environ


def test_code_in_a_downloader_reaches_no_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    tmp_path.chmod(0o777)
    found = try_in_downloader(tmp_path, 1)
    assert all(
        found[attempt]
        for attempt in ("read a file", "write a file", "run a program", "fork")
    )
