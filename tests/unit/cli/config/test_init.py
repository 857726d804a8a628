import os
import tomllib

import pytest

from tests.fakes.gguf_bytes import TEXT, gguf, pair, text
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.models.store.stores import add_model, open_store
from tests.unit.worker.whisper.models import model_bytes


@pytest.fixture
def home(short_dir, monkeypatch):
    monkeypatch.setenv("INFERD_MODELS", str(short_dir / "store"))
    return short_dir


def bring(inferd, path, name: str) -> None:
    assert inferd("model", "import", path, "--name", name).code == 0


@pytest.mark.slow
def test_a_first_configuration_is_written_that_is_accepted(inferd, home):
    bring(inferd, write_tiny_model(home / "q8.gguf", kind="q8_0"), "me/tiny:q8")
    bring(inferd, write_tiny_model(home / "f32.gguf"), "me/tiny:f32")
    bring(inferd, write_tiny_bert(home / "e.gguf"), "me/embed")
    (home / "s.bin").write_bytes(model_bytes())
    bring(inferd, home / "s.bin", "me/speech")
    code, stdout, stderr = inferd("config", "init")
    path = home / "inferd" / "config.toml"
    assert (code, stdout) == (0, "")
    assert stderr == (
        f"{path} is written\n\nhint: inferd config check --config {path}\n"
    )
    assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()
    backends = tomllib.loads(path.read_text())["backend"]
    assert [each["name"] for each in backends] == ["chat", "embed", "speech"]
    assert backends[0]["ladder"] == ["me/tiny:f32", "me/tiny:q8"]
    assert inferd("config", "check") == (
        0,
        f"{path}: ok, backends: chat, embed, speech\n",
        "",
    )
    assert [*path.parent.iterdir()] == [path]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_is_never_overwritten(inferd, home, monkeypatch):
    bring(inferd, write_tiny_model(home / "m.gguf"), "m")
    (home / "c.toml").write_text("mine")
    (home / "link.toml").symlink_to(home / "nowhere")
    for name in ("c.toml", "link.toml"):
        code, _, stderr = inferd("config", "init", "--output", home / name)
        assert code == 2
        assert stderr.startswith(f"error: {home / name} exists, and is not overwritten")
    monkeypatch.setattr("os.path.lexists", lambda _: False)  # made by another meanwhile
    code, _, stderr = inferd("config", "init", "--output", home / "c.toml")
    assert (code, "exists, and is not overwritten" in stderr) == (2, True)
    assert (home / "c.toml").read_text() == "mine"
    assert sorted(path.name for path in home.glob("*.toml*")) == ["c.toml", "link.toml"]
    assert [*home.glob(".c.toml*")] == []


def test_it_can_be_printed(inferd, home):
    bring(inferd, write_tiny_model(home / "m.gguf"), "m")
    code, stdout, stderr = inferd("config", "init", "--output", "-")
    assert (code, stderr) == (0, "")
    assert tomllib.loads(stdout)["backend"] == [
        {"name": "chat", "kind": "llamacpp", "model": "m"}
    ]


def test_an_embedded_model_of_the_store_is_served(inferd, home):
    data = write_tiny_bert(home / "e.gguf").read_bytes()
    add_model(open_store(home / "store"), "embedded:embed", data)
    stdout = inferd("config", "init", "--output", "-").stdout
    [embed] = tomllib.loads(stdout)["backend"]
    assert embed["model"] == "embedded:embed"


def test_models_that_cannot_be_served_are_told(inferd, home):
    bring(inferd, write_tiny_model(home / "m.gguf"), "m")
    bring(inferd, write_tiny_model(home / "n.gguf", template=None), "bare")
    bring(inferd, home / "m.gguf", "auto")
    for number in (1, 2):
        split = pair(b"general.name", TEXT, text(bytes([64 + number])))
        (home / f"s-0000{number}-of-00002.gguf").write_bytes(gguf(pairs=[split]))
    bring(inferd, home / "s-00001-of-00002.gguf", "split")
    stdout = inferd("config", "init", "--output", "-").stdout
    assert tomllib.loads(stdout)["backend"][0]["model"] == "m"
    assert "# auto is left out: this name is a word of the configuration" in stdout
    assert "# bare is left out: it has no chat template" in stdout
    assert "it is a whole model, and part 2 belongs in its place" in stdout


@pytest.mark.parametrize("untrusted", ["store", "other"])
def test_a_store_that_others_may_write_to_is_left_out_and_told(
    inferd, home, monkeypatch, untrusted
):
    for store in ("store", "other"):
        monkeypatch.setenv("INFERD_MODELS", str(home / store))
        bring(inferd, write_tiny_model(home / "m.gguf"), f"of-{store}")
    monkeypatch.setenv("INFERD_MODELS", f"{home}/store:{home}/other")
    (home / untrusted).chmod(0o777)
    code, stdout, stderr = inferd("config", "init", "--output", "-")
    fault = (
        f"the model store cannot be trusted: {home / untrusted} can be written to by "
        f"others (mode 0777); chmod go-w {home / untrusted}"
    )
    assert (code, stderr) == (0, f"note: a model store is left out: {fault}\n")
    assert f"\n# A model store is left out: {fault}\n" in stdout
    [trusted] = {"store", "other"} - {untrusted}
    assert [each["model"] for each in tomllib.loads(stdout)["backend"]] == [
        f"of-{trusted}"
    ]


def test_a_machine_whose_stores_are_left_out_is_told_why(inferd, home):
    bring(inferd, write_tiny_model(home / "m.gguf"), "m")
    (home / "store").chmod(0o777)
    code, _, stderr = inferd("config", "init")
    assert code == 2
    assert f"there is no model to serve: none in the store at {home}/store" in stderr
    assert f"chmod go-w {home}/store" in stderr


def test_a_machine_without_models_is_told_what_to_type(inferd, home):
    code, _, stderr = inferd("config", "init")
    assert code == 2
    assert "there is no model to serve" in stderr
    assert (
        "hint: inferd model import FILE, or inferd model pull embedded:chat" in stderr
    )
    assert not (home / "inferd").exists()


def test_a_place_that_cannot_be_written_to_is_an_error(inferd, home):
    bring(inferd, write_tiny_model(home / "m.gguf"), "m")
    code, _, stderr = inferd("config", "init", "--output", home / "m.gguf" / "c.toml")
    assert (code, "m.gguf: File exists" in stderr) == (2, True)
