import errno
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from inferd.config import served
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.config.served import NOTHING_SERVED, StoreModel, missing_models, view_stores
from inferd.config.settings import ModelsSettings
from inferd.limits.residency import MAX_SERVED_MODELS
from inferd.models.store.directory import StoreDirectory
from inferd.models.store.manifest import Manifest, StoredFile
from inferd.models.store.store import ModelStore
from tests.unit.models.store.stores import add_file, add_model, open_store

ALL = ModelsSettings(serve=True)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return open_store(tmp_path / "models")


def test_a_model_becomes_a_backend_that_is_loaded_on_demand(store):
    name = "team/x.gguf:q4"  # as a reference in a configuration it would be a path
    [file] = add_model(store, name, b"weights").files
    models = ModelsSettings(serve=True, n_ctx=128, keep_alive_s=7, n_gpu_layers="auto")
    view = view_stores([store.directory.path], models)
    assert view.served[name].settings == LlamaCppSettings(
        name=name,
        load="demand",
        model=str(store.directory.path / "blobs" / file.sha256),
        sha256=file.sha256,
        n_ctx=128,
        keep_alive_s=7,
        n_gpu_layers="auto",
    )


def test_projectors_and_speech_models_are_served_as_what_they_are(store):
    weights, projector = add_file(store, b"weights"), add_file(store, b"projector")
    eye = StoredFile(
        name="eye.gguf", sha256=projector.sha256, n_bytes=9, role="projector"
    )
    store.publish(Manifest(name="eye", source="test", files=(weights, eye)))
    speech = Manifest(name="ear", source="test", files=(weights,), kind="whispercpp")
    store.publish(speech)
    view = view_stores([store.directory.path], ALL)
    seeing, hearing = (view.served[name].settings for name in ("eye", "ear"))
    assert isinstance(seeing, LlamaCppSettings)
    assert seeing.mmproj_sha256 == projector.sha256
    assert isinstance(hearing, WhisperCppSettings)


def test_what_cannot_be_used_is_refused_and_the_others_are_served(store):
    add_model(store, "good", b"weights")
    [file] = add_model(store, "gone", b"other").files
    store.directory.remove("blobs", file.sha256)
    path = store.directory.path / "manifests"
    (path / "torn.json").write_text("{")
    (path / "link.json").symlink_to(path / "good.json")
    os.mkfifo(path / "pipe.json")
    view = view_stores([store.directory.path], ALL)
    assert [*view.served] == ["good"]
    reasons = {name: refused.reason for name, refused in view.refused.items()}
    assert set(reasons) == {"gone", "link", "pipe", "torn"}
    assert "bring the model again" in reasons["gone"]
    assert "torn.json: it is not valid" in reasons["torn"]
    assert "is not a regular file" in reasons["pipe"]


def test_a_name_that_no_backend_can_have_is_refused_alone(store, monkeypatch):
    add_model(store, "good", b"weights")
    add_model(store, "bad", b"weights")
    settings = served._View._settings  # names that differ do not exist

    def make(view, kind, name):
        return settings(view, kind, "\u212a" if name == "bad" else name)

    monkeypatch.setattr(served._View, "_settings", make)
    view = view_stores([store.directory.path], ALL)
    assert ([*view.served], [*view.refused]) == (["good"], ["bad"])


def test_manifests_are_read_again_only_if_they_have_changed(store, monkeypatch):
    add_model(store, "a", b"one")
    add_model(store, "b", b"two")
    before = view_stores([store.directory.path], ALL)
    read: list[str] = []
    model = ModelStore.model

    def note(self, name):
        read.append(name)
        return model(self, name)

    monkeypatch.setattr(ModelStore, "model", note)
    assert view_stores([store.directory.path], ALL, before) == before
    add_model(store, "b", b"another one")
    after = view_stores([store.directory.path], ALL, before)
    assert read == ["b"]
    assert after.served["b"].settings != before.served["b"].settings


def test_a_manifest_that_cannot_be_read_now_changes_nothing(store, monkeypatch):
    add_model(store, "a", b"one")
    before = view_stores([store.directory.path], ALL)
    add_model(store, "a", b"another one")
    add_model(store, "b", b"two")

    def fail(*_args):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ModelStore, "model", fail)
    view = view_stores([store.directory.path], ALL, before)
    assert view.served == before.served
    assert "Too many open files" in view.refused["b"].reason


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take all descriptors that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        first = os.open("/", os.O_PATH)
        stack.callback(os.close, first)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + 1, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield


@pytest.mark.parametrize("serve", [True, ("own", "theirs")])
def test_a_look_without_descriptors_serves_what_was_there(store, tmp_path, serve):
    add_model(store, "own", b"one")
    machine = open_store(tmp_path / "machine")
    add_model(machine, "theirs", b"two")
    models = ModelsSettings(serve=serve)
    paths = [store.directory.path, machine.directory.path]
    before = view_stores(paths, models)
    with no_descriptors():
        view = view_stores(paths, models, before)
        at_first = view_stores(paths, models)
    assert (view.served, view.refused) == (before.served, {})
    assert "Too many open files" in view.failure
    assert at_first.served == {}
    assert [*missing_models(models, at_first)] or serve is True
    assert view_stores(paths, models, view) == before


@pytest.mark.parametrize("serve", [True, ("a", "own", "theirs")])
def test_a_store_that_cannot_be_read_hides_nothing_that_was_there(
    store, tmp_path, monkeypatch, serve
):
    add_model(store, "own", b"one")
    machine = open_store(tmp_path / "machine")
    add_model(machine, "theirs", b"two")
    models = ModelsSettings(serve=serve)
    paths = [store.directory.path, machine.directory.path]
    before = view_stores(paths, models)
    opening = StoreDirectory.open

    def fail(path, *, makes):
        if path == store.directory.path:
            raise OSError(errno.EIO, "Input/output error")
        return opening(path, makes=makes)

    monkeypatch.setattr(StoreDirectory, "open", fail)
    add_model(machine, "a", b"three")
    add_model(machine, "own", b"four")
    view = view_stores(paths, models, before)
    assert {*view.served} == {"a", "own", "theirs"}
    assert view.served["own"] == before.served["own"]
    assert "Input/output error" in view.failure


def test_only_models_that_are_named_are_served(store):
    add_model(store, "a", b"one")
    add_model(store, "b", b"two")
    models = ModelsSettings(serve=("b", "c"))
    view = view_stores([store.directory.path], models)
    assert [*view.served] == ["b"]
    assert view.refused["c"].is_missing
    [fault] = missing_models(models, view)
    assert fault.startswith("models.serve: c: ")
    assert "has no model c; there are: a, b" in fault


def test_no_more_than_the_most_are_served(store, monkeypatch):
    monkeypatch.setattr("inferd.config.served.MAX_SERVED_MODELS", 2)
    for name in "dbca":
        add_model(store, name, b"one")
    view = view_stores([store.directory.path], ALL)
    assert [*view.served] == ["a", "b"]
    assert "2 models from c on are not served" in view.refused[""].reason
    assert MAX_SERVED_MODELS >= 200


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_store_that_is_missing_or_not_trusted_serves_nothing(tmp_path, is_trusted):
    path = tmp_path / "models"
    if not is_trusted:
        open_store(path)
        path.chmod(0o777)
    reason = "is no model store" if is_trusted else "cannot be trusted"
    assert reason in view_stores([path], ALL).refused[""].reason
    named = ModelsSettings(serve=("a",))
    [fault] = missing_models(named, view_stores([path], named))
    assert reason in fault
    assert view_stores([path], ModelsSettings()) == NOTHING_SERVED


def digest_of(model: StoreModel) -> object:
    assert isinstance(model.settings, LlamaCppSettings)
    return model.settings.sha256


def test_the_models_of_all_stores_are_served_from_the_first_that_has_them(
    store, tmp_path
):
    machine = open_store(tmp_path / "machine")
    [own] = add_model(store, "both", b"own").files
    add_model(machine, "both", b"the machine's")
    [other] = add_model(machine, "only", b"other").files
    paths = [tmp_path / "none", store.directory.path, machine.directory.path]
    for models in (ALL, ModelsSettings(serve=("both", "only"))):
        view = view_stores(paths, models)
        assert {name: digest_of(model) for name, model in view.served.items()} == {
            "both": own.sha256,
            "only": other.sha256,
        }
        assert view.refused == {}
        assert view_stores(paths, models, view) == view


def test_a_store_that_is_not_trusted_hides_no_other(store, tmp_path):
    add_model(store, "there", b"weights")
    others = open_store(tmp_path / "others").directory.path
    others.chmod(0o777)
    paths = [others, store.directory.path]
    view = view_stores(paths, ALL)
    assert [*view.served] == ["there"]
    assert "cannot be trusted" in view.refused[""].reason
    view = view_stores(paths, ModelsSettings(serve=("there", "gone")))
    assert [*view.served] == ["there"]
    assert "cannot be trusted" in view.refused["gone"].reason
    assert "has no model gone; there are: there" in view.refused["gone"].reason
    assert not view.refused["gone"].is_missing
