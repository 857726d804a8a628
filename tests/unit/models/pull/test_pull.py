"""Whole models: what a store has after a pull, and after one that failed."""

import os
import subprocess
from pathlib import Path

import pytest

from inferd.models.pull.download import DownloadBounds
from inferd.models.pull.errors import DroppedError, PullError
from inferd.models.pull.pull import PullOptions, plan_pull, pull
from inferd.models.pull.source import parse_source
from inferd.models.store.directory import MANIFESTS, PARTIAL, StoreDirectory, StoreError
from inferd.models.store.names import file_of
from inferd.models.store.store import ModelStore
from tests.fakes.hub import COMMIT, Behaviour
from tests.unit.models.store.stores import add_model, assert_whole, open_store

pytestmark = pytest.mark.slow  # a process, a server

MODEL = b"GGUF" + bytes(range(256)) * 400
PROJECTOR = b"GGUF projector"
PARTS = {f"m-Q8_0-0000{n}-of-00002.gguf": MODEL + bytes([n]) for n in (1, 2)}
BOUNDS = DownloadBounds()


@pytest.fixture
def bring(hub, shared, store):
    def run(source, *, sha256=None, into=store, **options):
        chosen = PullOptions(**options)
        plan = plan_pull(into, shared, parse_source(source, sha256), chosen)
        return pull(into, shared, plan, BOUNDS, lambda _: lambda *_: None)

    return run


def roles(manifest):
    return [(file.name, file.role) for file in manifest.files]


def test_a_model_of_an_address_has_its_name_and_source(bring, hub):
    url = hub.url("/x/My%20model.gguf")
    sha256 = hub.add("/x/My%20model.gguf", MODEL)
    manifest = bring(url, sha256=sha256)
    assert (manifest.name, manifest.source) == ("My-model", url)
    assert roles(manifest) == [("My model.gguf", "model")]
    assert manifest.files[0].sha256 == sha256
    assert bring(url, sha256=sha256, name="me/b:q4").name == "me/b:q4"
    assert len(hub.asked) == 1


def test_a_model_of_a_hub_has_revision_licence_and_projector(bring, hub, store):
    hub.add_repository("me/m", {"m-Q4_K_M.gguf": MODEL, "mmproj.gguf": PROJECTOR})
    manifest = bring("hf:me/m")
    assert store.model("me/m:m-Q4_K_M") == manifest
    assert (manifest.revision, manifest.license) == (COMMIT, "apache-2.0")
    assert manifest.source == "hf:me/m"
    assert roles(manifest) == [("m-Q4_K_M.gguf", "model"), ("mmproj.gguf", "projector")]


def test_a_file_of_a_hub_that_needs_a_token_is_told_with_what_to_set(bring, hub):
    hub.add_repository("me/m", {"m.gguf": MODEL})
    path = f"/me/m/resolve/{COMMIT}/m.gguf"
    hub.behaviours[path] = Behaviour(status=403)
    with pytest.raises(PullError, match="answers: 403") as raised:
        bring("hf:me/m")
    assert "HF_TOKEN" in raised.value.hint


def test_a_split_model_has_all_parts_in_order(bring, hub):
    hub.add_repository("me/m", {**PARTS, "m-Q4_0.gguf": MODEL})
    manifest = bring("hf:me/m:Q8_0", with_projector=False)
    assert roles(manifest) == [(name, "model") for name in sorted(PARTS)]


def test_a_model_of_whisper_is_one(bring, hub):
    hub.add_repository("me/w", {"ggml-tiny.bin": b"lmgg" + MODEL})
    assert bring("hf:me/w/ggml-tiny.bin").kind == "whispercpp"


def test_files_are_not_pruned_before_their_model_is_added(
    bring, hub, store, monkeypatch
):
    """First such that come, then such that the store has already."""
    real = type(store).publish

    def publish(store, manifest):
        with open_store(store.directory.path).directory as other:
            ModelStore(other).prune()
        real(store, manifest)

    monkeypatch.setattr(ModelStore, "publish", publish)
    hub.add_repository("me/m", PARTS)
    for _ in range(2):
        manifest = bring("hf:me/m:Q8_0")
        assert all(map(store.has_blob, manifest.files))
        store.directory.remove(MANIFESTS, file_of(manifest.name))
    n_asked = len(hub.asked)
    bring("hf:me/m:Q8_0")
    assert len(hub.asked) == n_asked + 1  # what the repository has, and no file


def test_a_pull_that_was_interrupted_leaves_the_old_model(bring, hub, store):
    hub.add_repository("me/m", {"m-Q8_0.gguf": MODEL})
    old = bring("hf:me/m:Q8_0")
    hub.add_repository("me/m", PARTS, commit="new")
    second = f"/me/m/resolve/new/{max(PARTS)}"
    hub.behaviours[second] = Behaviour(sends=50_000)
    with pytest.raises(DroppedError):
        bring("hf:me/m:Q8_0")
    assert store.model("me/m:Q8_0") == old
    assert_whole(store)
    hub.behaviours.clear()
    hub.asked.clear()
    new = bring("hf:me/m:Q8_0")
    assert (new.revision, len(new.files)) == ("new", 2)
    assert [asked.path for asked in hub.asked if "resolve" in asked.path] == [second]


def test_the_space_for_all_files_is_checked_before_the_first_byte(
    bring, hub, store, monkeypatch
):
    hub.add_repository("me/m", PARTS)
    free = 64 * 1024 * 1024 + len(MODEL) + 10
    monkeypatch.setattr(StoreDirectory, "free_bytes", lambda _: free)
    with pytest.raises(PullError, match=f"has {free} bytes free, and") as raised:
        bring("hf:me/m")
    assert "inferd model prune" in raised.value.hint
    assert store.directory.names(PARTIAL) == []
    assert not [asked for asked in hub.asked if "resolve" in asked.path]


def test_what_has_come_already_needs_no_space_again(bring, hub, monkeypatch):
    hub.add_repository("me/m", {"m.gguf": MODEL})
    path = f"/me/m/resolve/{COMMIT}/m.gguf"
    hub.behaviours[path] = Behaviour(sends=80_000, n_times=1)
    with pytest.raises(DroppedError):
        bring("hf:me/m")
    free = 64 * 1024 * 1024 + len(MODEL) - 10_000
    monkeypatch.setattr(StoreDirectory, "free_bytes", lambda _: free)
    bring("hf:me/m")


# --- names ------------------------------------------------------------------------------


def test_the_model_of_another_source_is_not_replaced(bring, hub, store):
    old = add_model(store, "me/m", b"GGUF old")
    hub.add_repository("a/b", {"m.gguf": MODEL})
    with pytest.raises(PullError, match="has me/m from another source, test") as raised:
        bring("hf:a/b", name="me/m")
    assert "inferd model remove me/m" in raised.value.hint
    assert store.model("me/m") == old
    assert not [asked for asked in hub.asked if "resolve" in asked.path]


@pytest.mark.parametrize("name", ["../x", "a/../b", "a\x1b[2J", "", "x" * 129, "a\n"])
def test_a_name_that_cannot_be_one_is_refused_before_the_first_byte(bring, hub, name):
    hub.add_repository("a/b", {"m.gguf": MODEL})
    if not name:
        assert bring("hf:a/b", name=name).name == "a/b:m"
        return
    with pytest.raises(PullError) as raised:
        bring("hf:a/b", name=name)
    assert raised.value.hint == "choose one: --name NAME"
    assert not [asked for asked in hub.asked if "resolve" in asked.path]


def test_a_manifest_of_another_version_is_not_replaced(bring, hub, store):
    add_model(store, "me/m", b"GGUF old")
    path = store.directory.path_of(MANIFESTS, file_of("me/m"))
    later = path.read_bytes().replace(b'"format": 1', b'"format": 2')
    path.write_bytes(later)
    hub.add_repository("a/b", {"m.gguf": MODEL})
    with pytest.raises(PullError, match="has format 2, and this version") as raised:
        bring("hf:a/b", name="me/m")
    assert "inferd model remove me/m" in raised.value.hint
    assert path.read_bytes() == later
    path.unlink()


# --- file systems -----------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path):
    """A function that mounts a small file system."""
    made: list[Path] = []

    def mount(*options):
        path = tmp_path / f"mounted-{len(made)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", path]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        made.append(path)
        return path

    yield mount
    for path in made:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.root
@pytest.mark.slow
def test_a_disk_that_is_full_at_any_byte_keeps_the_store_whole(
    bring, hub, mounted, monkeypatch
):
    """The check of the free space is turned off: others write to the disk, too."""
    monkeypatch.setattr(StoreDirectory, "free_bytes", lambda _: 2**40)
    hub.add_repository("me/m", {"m.gguf": MODEL})
    for kib in range(8, 101, 23):
        path = mounted("-o", f"size={kib}k")
        path.chmod(0o755)
        small = open_store(path / "models")
        with pytest.raises((StoreError, OSError), match="No space left"):
            bring("hf:me/m", into=small)
        assert_whole(small)
        assert small.names() == []
        subprocess.run(["mount", "-o", "remount,size=1m", path], check=True)
        hub.asked.clear()
        bring("hf:me/m", into=small)
        assert_whole(small)
        small.directory.close()


@pytest.mark.root
@pytest.mark.slow
def test_a_store_that_cannot_be_written_to_is_told(inferd, hub, mounted, monkeypatch):
    path = mounted()
    path.chmod(0o755)
    open_store(path / "models").directory.close()
    subprocess.run(["mount", "-o", "remount,ro", path], check=True)
    monkeypatch.setenv("INFERD_MODELS", str(path / "models"))
    for _ in range(2):
        code, _, stderr = inferd("model", "pull", "hf:a/b")
        assert code == 2
        assert stderr == (
            f"error: the model store {path / 'models'}: Read-only file system\n\n"
            "hint: choose another directory: INFERD_MODELS=DIRECTORY\n"
        )
        monkeypatch.setenv("INFERD_MODELS", str(path / "models"))
    assert hub.asked == []
    assert os.listdir(path) == ["models"]  # noqa: PTH208
