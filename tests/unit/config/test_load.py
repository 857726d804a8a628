from pathlib import Path

import msgspec
import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.config.load import load_config, locate_model, socket_directory
from inferd.config.settings import Config, ConfigError, ListenSettings
from tests.unit.models.store.stores import add_model, open_store

MOCK = '[[backend]]\nkind = "mock"\nname = "{}"\n'


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    """The usual places for a file, in a directory that is empty."""
    for variable in ("INFERD_CONFIG", "INFERD_CACHE_DIR", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    files = [tmp_path / "user.toml", tmp_path / "system.toml"]
    monkeypatch.setattr("inferd.config.load.config_files", lambda: files)
    return files


@pytest.fixture
def written(tmp_path):
    """Write a configuration whose backend has this name."""

    def write(name, path=None):
        path = path or tmp_path / f"{name}.toml"
        path.write_text(MOCK.format(name))
        return path

    return write


def name_in(config):
    [backend] = config.backend
    return backend.name


# --- the file ---------------------------------------------------------------------------


def test_without_a_file_there_are_defaults():
    assert load_config(None) == Config(backend=(LlamaCppSettings(name="chat"),))


def test_the_first_default_path_counts(places, written):
    user, system = places
    written("system", system)
    assert name_in(load_config(None)) == "system"
    written("user", user)
    assert name_in(load_config(None)) == "user"


def test_the_environment_comes_before_the_default_paths(places, written, monkeypatch):
    written("user", places[0])
    monkeypatch.setenv("INFERD_CONFIG", str(written("environ")))
    assert name_in(load_config(None)) == "environ"


def test_the_command_line_comes_first(written, monkeypatch):
    monkeypatch.setenv("INFERD_CONFIG", str(written("environ")))
    assert name_in(load_config(written("given"))) == "given"


def test_a_given_file_must_exist(tmp_path, monkeypatch):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "missing.toml")
    assert str(caught.value) == (
        f"configuration {tmp_path}/missing.toml: No such file or directory"
    )
    monkeypatch.setenv("INFERD_CONFIG", str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigError):
        load_config(None)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"a\.toml: not UTF-8: "):
        load_config(tmp_path / "a.toml")


def test_a_default_path_that_cannot_be_accessed_is_named(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 300)
    monkeypatch.setattr("inferd.config.load.config_files", lambda: [long])
    with pytest.raises(ConfigError) as caught:
        load_config(None)
    assert str(caught.value) == f"configuration {long}: File name too long"


@pytest.mark.parametrize("content", [b"\xff", b"oops = 1", b"[", b"[listen]\nv2 = 1"])
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path, content):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_directory_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_a_model_on_the_command_line_replaces_the_backends(written, tmp_path):
    path = written("mock")
    path.write_text("[admission]\nmax_queued = 3\n" + path.read_text())
    config = load_config(path, "/m.gguf")
    assert config.backend == (LlamaCppSettings(name="chat", model="/m.gguf"),)
    assert config.admission.max_queued == 3


# --- the sockets ------------------------------------------------------------------------


def test_sockets_are_where_it_is_configured_or_where_they_usually_are(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert socket_directory(Config()) == Path("/run/user/1/inferd")
    assert socket_directory(Config(listen=ListenSettings(directory="/srv"))) == Path(
        "/srv"
    )


# --- the model --------------------------------------------------------------------------


def test_a_mock_needs_no_file():
    settings = MockSettings(name="m")
    assert locate_model(settings) is settings


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("/models/chat.gguf", "/models/chat.gguf"),
        ("~/chat.gguf", "{home}/chat.gguf"),
        ("chat.gguf", "{here}/chat.gguf"),
    ],
)
def test_a_path_is_made_absolute(monkeypatch, tmp_path, model, path):
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.chdir(tmp_path)
    settings = LlamaCppSettings(name="c", model=model, sha256="0" * 64, n_ctx=512)
    wanted = path.format(home=tmp_path / "ada", here=tmp_path)
    assert locate_model(settings) == LlamaCppSettings(
        name="c", model=wanted, sha256="0" * 64, n_ctx=512
    )


def test_the_path_of_a_draft_model_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    settings = LlamaCppSettings(
        name="c", model="large.gguf", speculation="draft", draft_model="small.gguf"
    )
    found = locate_model(settings)
    assert isinstance(found, LlamaCppSettings)
    assert found.draft_model == str(tmp_path / "small.gguf")
    assert found.model == str(tmp_path / "large.gguf")


def test_the_path_of_a_projector_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = locate_model(LlamaCppSettings(name="c", model="m.gguf", mmproj="p.gguf"))
    assert isinstance(found, LlamaCppSettings)
    assert found.mmproj == str(tmp_path / "p.gguf")
    assert found.draft_model is None


def test_the_home_of_an_unknown_user_is_one_line():
    with pytest.raises(ConfigError, match="~nobody-by-this-name"):
        locate_model(LlamaCppSettings(name="c", model="~nobody-by-this-name/m.gguf"))


@pytest.fixture
def store(monkeypatch, tmp_path):
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "store"))
    return open_store(tmp_path / "store")


def test_an_embedded_model_is_a_file_of_the_store_with_its_hash(store, tmp_path):
    [file] = add_model(store, "embedded:chat", b"GGUF").files
    path = tmp_path / "store" / "blobs" / file.sha256
    assert locate_model(LlamaCppSettings(name="c", n_ctx=512)) == LlamaCppSettings(
        name="c", model=str(path), sha256=file.sha256, n_ctx=512
    )


def test_a_missing_embedded_model_is_reported_with_the_command_to_pull_it(
    store, tmp_path
):
    with pytest.raises(ConfigError) as caught:
        locate_model(LlamaCppSettings(name="c"))
    assert str(caught.value) == (
        f"backend c: embedded:chat is not in the model store ({tmp_path}/store); "
        "run: inferd model pull embedded:chat"
    )


def test_an_unknown_embedded_model_is_refused():
    with pytest.raises(ConfigError) as caught:
        locate_model(LlamaCppSettings(name="c", model="embedded:huge"))
    assert str(caught.value) == (
        "backend c: model = embedded:huge: no such model; "
        "allowed: a path, embedded:chat, embedded:embed, embedded:rerank, "
        "embedded:speech, embedded:speech-multilingual"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            LlamaCppSettings(name="b", model="embedded:speech"),
            'backend b: embedded:speech is for kind = "whispercpp", not "llamacpp"',
        ),
        (
            WhisperCppSettings(name="b", model="embedded:chat"),
            'backend b: embedded:chat is for kind = "llamacpp", not "whispercpp"',
        ),
    ],
)
def test_an_embedded_model_of_another_kind_is_refused_with_that_kind(
    store, settings, text
):
    add_model(store, "embedded:chat", b"GGUF")
    speech = add_model(store, "embedded:speech", b"lmgg")
    store.publish(msgspec.structs.replace(speech, kind="whispercpp"))
    with pytest.raises(ConfigError) as caught:
        locate_model(settings)
    assert str(caught.value) == text
