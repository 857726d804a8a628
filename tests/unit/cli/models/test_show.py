import json
import os

import pytest
from msgspec.structs import replace

from inferd.doctor.fit import Fit
from inferd.memory.plan import MIB
from tests.fakes.gguf_bytes import TEXT, gguf, pair, text
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.models.found.test_found import add_ollama
from tests.unit.models.store.stores import add_model, open_store
from tests.unit.worker.whisper.models import model_bytes

FITS = Fit(
    fits=True,
    n_slots=2,
    n_ctx=4096,
    is_reduced=True,
    needed_bytes=300 * MIB,
    budget_bytes=1000 * MIB,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "store"))
    monkeypatch.setattr("inferd.doctor.speed.measure_bandwidth", lambda _: 10**9)
    return tmp_path


@pytest.fixture
def fit(monkeypatch):
    """Have every model fit like this; give the settings that were asked about."""
    asked = []

    def fit_alone(settings, _config):
        asked.append(settings)
        return FITS

    monkeypatch.setattr("inferd.cli.models.show.fit_alone", fit_alone)
    return asked


def table(inferd, *arguments: object) -> dict[str, str]:
    code, stdout, stderr = inferd("model", "show", *arguments)
    assert (code, stderr) == (0, "")
    lines = [line.split(None, 1) for line in stdout.splitlines()]
    return dict(lines)


def test_a_file_is_shown_with_what_it_can_do_here(inferd, home, fit):
    path = write_tiny_model(home / "m.gguf")
    shown = table(inferd, path)
    facts = as_json(inferd, path)["facts"]
    assert shown == {
        "name": "m.gguf",
        "source": str(path),
        "licence": "not known",
        "size": shown["size"],
        "kind": "llamacpp",
        "title": "tiny-random",
        "does": "generates text",
        "architecture": "llama, 2 layers of width 64",
        "parameters": shown["parameters"],
        "quantisation": "F32 (100 % F32)",
        "context": "512 tokens in training",
        "template": "chatml",
        "here": "fits: 2 requests at once of 4096 tokens each, reduced to fit; 300 MiB of "
        "the 1000 MiB that models may take now",
        "speed": shown["speed"],
        "model": f"m.gguf, {shown['size']}",
    }
    assert shown["parameters"] == f"{facts['n_bytes'] / 4 / 1e6:.1f} M"
    rate = float(f"{10**9 / facts['token_bytes']:.2g}")
    assert shown["speed"].startswith(f"fast; an estimate: at most {rate:g} tokens/s ")
    assert shown["speed"].endswith("at 1.0 GB/s (measured)")
    assert fit[0].model == str(path)


def as_json(inferd, *arguments: object):
    code, stdout, _ = inferd("model", "show", "--json", *arguments)
    assert code == 0
    return json.loads(stdout)


def test_a_model_without_a_chat_template_is_told_what_it_needs(inferd, home, fit):
    path = write_tiny_model(home / "m.gguf", template=None, window=8)
    assert table(inferd, path)["template"] == (
        "gemma3 by its architecture; the file has no template, so its [[backend]] needs "
        'chat_template = "gemma3"'
    )
    assert as_json(inferd, path)["has_template"] is False


def test_a_program_reads_the_same(inferd, home, fit):
    found = as_json(inferd, write_tiny_model(home / "m.gguf"))
    assert (found["template_family"], found["here"]["n_ctx"]) == ("chatml", 4096)
    assert found["facts"]["n_ctx"] == 512
    assert found["speed"]["bandwidth_bytes_per_s"] == 10**9
    assert found["files"][0]["path"] == str(home / "m.gguf")


def test_the_header_alone_asks_no_worker(inferd, home, fit):
    shown = table(inferd, "--header-only", write_tiny_model(home / "m.gguf"))
    assert "here" not in shown
    assert fit == []


def test_an_encoder_and_a_speech_model_have_no_speed(inferd, home, fit):
    shown = table(inferd, write_tiny_bert(home / "e.gguf"))
    assert shown["does"] == "embeds texts"
    assert not {"speed", "template"} & set(shown)
    (home / "s.bin").write_bytes(model_bytes())
    shown = table(inferd, home / "s.bin")
    assert shown["does"].startswith("transcribes speech, ")
    assert shown["here"].startswith("fits: 2 requests at once, reduced")
    assert fit[-1].model == str(home / "s.bin")


def test_a_model_of_the_store_is_shown_with_its_projector(inferd, home, fit):
    write_tiny_model(home / "m.gguf")
    projector = home / "mmproj.gguf"
    projector.write_bytes(
        gguf(pairs=[pair(b"general.architecture", TEXT, text(b"clip"))])
    )
    inferd(
        *("model", "import", home / "m.gguf", "--name", "me/m:f32"),
        *("--projector", projector),
    )
    shown = table(inferd, "me/m:f32")
    assert shown["projector"].startswith("mmproj.gguf, ")
    assert fit[0].model == "me/m:f32"
    assert fit[0].mmproj.startswith(str(home / "store"))
    assert table(inferd, projector)["does"].endswith("no model by itself")
    assert len(fit) == 1


def test_a_model_of_another_program_is_shown(inferd, home, fit):
    weights = write_tiny_model(home / "m.gguf").read_bytes()
    names = ("h", "library", "qwen3", "0.6b")
    add_ollama(home / ".ollama" / "models", names, ("model", weights))
    shown = table(inferd, "qwen3:0.6b", "--from", "ollama")
    assert (shown["source"], shown["title"]) == ("ollama:qwen3:0.6b", "tiny-random")
    assert fit[0].model.startswith(str(home / ".ollama/models/blobs"))
    code, _, stderr = inferd("model", "show", "other", "--from", "ollama")
    assert code == 2
    assert stderr.splitlines() == [
        "error: ollama has no model other; it has: qwen3:0.6b",
        "",
        "hint: inferd model import --from ollama --dry-run",
    ]


def test_an_embedded_model_that_was_not_fetched_is_told_what_to_type(inferd, home):
    code, _, stderr = inferd("model", "show", "embedded:chat")
    assert code == 2
    assert "there is no model store at" in stderr
    assert "hint: inferd model pull embedded:chat" in stderr
    code, _, stderr = inferd("model", "show", "embedded:no")
    assert (code, "no such model; allowed: a path, embedded:chat" in stderr) == (
        2,
        True,
    )


def test_a_model_of_a_second_store_is_shown_and_listed(inferd, home, fit, monkeypatch):
    data = write_tiny_model(home / "m.gguf").read_bytes()
    add_model(open_store(home / "store"), "both", b"GGUF")
    machine = open_store(home / "machine")
    add_model(machine, "both", data)
    machine.publish(replace(add_model(machine, "theirs", data), license="MIT"))
    monkeypatch.setenv("INFERD_MODELS", f"{home}/store:{home}/machine")
    assert table(inferd, "theirs")["licence"] == "MIT"
    both, theirs = inferd("model", "list").stdout.splitlines()
    assert both == "both  4 B  test"
    assert theirs.endswith(f"  test  in {home}/machine")


@pytest.mark.parametrize("content", [b"GGUF", b"<html>", model_bytes()[:-1]])
def test_a_file_that_cannot_be_read_is_an_error_in_one_line(content, inferd, home):
    path = home / "m.gguf"
    path.write_bytes(content)
    code, stdout, stderr = inferd("model", "show", path)
    assert (code, stdout.startswith("name         m.gguf\n")) == (1, True)
    assert stderr.startswith(f"error: {path}: ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["no.gguf", "~nobody/x.gguf"])
def test_a_file_that_is_not_there_is_an_error(name, inferd, home):
    code, _, stderr = inferd("model", "show", name)
    assert (code, stderr.startswith("error: ")) == (2, True)


def test_texts_of_a_file_cannot_control_the_terminal(inferd, home, fit):
    name = pair(b"general.name", TEXT, text("\x1b[2J\nsize 1\u202e".encode()))
    path = home / os.fsdecode(b"m\xff.gguf")
    path.write_bytes(gguf(pairs=[name]))
    shown = table(inferd, path)
    assert shown["title"] == r"\x1b[2J\nsize 1\u202e"
    assert shown["name"] == r"m\udcff.gguf"
    assert as_json(inferd, path)["name"] == r"m\udcff.gguf"


def test_a_configuration_that_cannot_be_used_is_noted(inferd, home, fit):
    (home / "c.toml").write_text("no = 1\n")
    path = write_tiny_model(home / "m.gguf")
    code, _, stderr = inferd("model", "show", path, "--config", home / "c.toml")
    assert code == 0
    assert stderr.startswith(f"note: {home}/c.toml: no: no such key")
