import hashlib
import io
import json
import socket

import pytest

from inferd.cli.models.opening import size
from inferd.models.store.directory import StoreDirectory
from tests.cases import each_case
from tests.fakes.gguf_bytes import gguf, tensor
from tests.fakes.listener import listening, says, status
from tests.unit.models.found.test_found import add_ollama

WEIGHTS = gguf(data=b"w" * 68)
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "store"))
    return tmp_path


def write(path, data=WEIGHTS):
    path.write_bytes(data)
    return path


def test_a_file_is_brought_listed_shown_verified_and_removed(inferd, home):
    path = write(home / "tiny-q4.gguf")
    assert inferd("model", "import", path, "--name", "me/tiny:q4") == (
        0,
        "",
        "me/tiny:q4: 100 B, linked\n",
    )
    assert inferd("model", "list") == (0, f"me/tiny:q4  100 B  {path}\n", "")
    code, shown, _ = inferd("model", "show", "--header-only", "me/tiny:q4")
    assert code == 0
    assert f"model        tiny-q4.gguf, 100 B, SHA-256 {DIGEST}\n" in shown
    assert inferd("model", "verify") == (0, "me/tiny:q4: ok\n", "")
    assert inferd("model", "remove", "me/tiny:q4") == (
        0,
        "",
        "me/tiny:q4 is removed; 0 B freed\n",  # the file itself has the bytes
    )
    assert inferd("model", "list") == (0, "", "")
    assert path.read_bytes() == WEIGHTS


def test_the_name_is_that_of_the_file_if_none_is_given(inferd, home):
    inferd("model", "import", write(home / "My Model (v2).gguf"))
    assert inferd("model", "list")[1].startswith("My-Model-v2  100 B")


def test_a_split_file_and_a_projector_are_one_model(inferd, home):
    for number in (1, 2):
        write(home / f"m-0000{number}-of-00002.gguf", WEIGHTS + bytes([number]))
    projector = write(home / "mmproj.gguf", b"GGUF projector")
    code, _, stderr = inferd(
        *("model", "import", home / "m-00002-of-00002.gguf", "--projector", projector)
    )
    assert (code, stderr) == (0, "m: 216 B, linked\n")
    files = json.loads(inferd("model", "list", "--json")[1])["files"]
    assert [(file["name"], file["role"]) for file in files] == [
        ("m-00001-of-00002.gguf", "model"),
        ("m-00002-of-00002.gguf", "model"),
        ("mmproj.gguf", "projector"),
    ]
    (home / "m-00001-of-00002.gguf").unlink()
    code, _, stderr = inferd("model", "import", home / "m-00002-of-00002.gguf")
    assert (code, stderr) == (1, "error: m: part 1 of 2 is missing\n")


def test_what_another_program_has_is_brought(inferd, home):
    models = home / ".ollama" / "models"
    add_ollama(models, ("h", "library", "qwen3", "0.6b"), ("model", WEIGHTS))
    add_ollama(
        *(models, ("h", "library", "other", "1b"), ("model", WEIGHTS + b"!")),
        has_blobs=False,
    )
    code, listed, _ = inferd("model", "import", "--from", "ollama", "--dry-run")
    assert code == 0
    assert "qwen3:0.6b  ollama:qwen3:0.6b\n" in listed
    assert "other:1b  ollama:other:1b  cannot be brought: sha256-" in listed
    code, _, stderr = inferd("model", "import", "--from", "ollama")
    assert code == 1
    assert "qwen3:0.6b: 100 B, linked\n" in stderr
    assert "error: other:1b: sha256-" in stderr
    assert inferd("model", "list")[1] == "qwen3:0.6b  100 B  ollama:qwen3:0.6b\n"
    assert inferd("model", "import", "--from", "ollama", "--only", "qwen3:0.6b") == (
        0,
        "",
        "qwen3:0.6b: 100 B, was there\n",
    )
    add_ollama(models, ("h", "library", "qwen3", "latest"), ("model", WEIGHTS))
    code, _, stderr = inferd("model", "import", "--from", "ollama", "--only", "qwen3")
    assert (code, stderr) == (0, "qwen3:latest: 100 B, was there\n")
    other = write(home / "other.gguf", WEIGHTS + b"?")
    inferd("model", "remove", "qwen3:0.6b")
    inferd("model", "import", other, "--name", "qwen3:0.6b")
    code, _, stderr = inferd(
        "model", "import", "--from", "ollama", "--only", "qwen3:0.6b"
    )
    assert code == 1
    assert stderr.endswith("hint: first: inferd model remove qwen3:0.6b\n")
    shown = inferd("model", "show", "--header-only", "--from", "ollama", "qwen3")
    assert shown[1].startswith("name         qwen3:latest\n")


def test_a_damaged_file_is_told_and_moved(inferd, home):
    path = write(home / "m.gguf")
    inferd("model", "import", path)
    path.write_bytes(b"x" * 100)  # what is linked changes as well
    code, stdout, _ = inferd("model", "verify", "m")
    assert code == 1
    assert stdout.startswith("m: damaged\n  m.gguf: its SHA-256 is ")
    code, stdout, _ = inferd("model", "list")
    assert (code, stdout) == (1, f"m  100 B  {path}  files are missing\n")


def test_a_manifest_that_cannot_be_used_keeps_no_other_model_unverified(inferd, home):
    path = write(home / "m.gguf")
    inferd("model", "import", path)
    path.write_bytes(b"x" * 100)
    (home / "store/manifests/a.json").write_text('{"format": 2}')
    code, stdout, stderr = inferd("model", "verify")
    assert code == 1
    assert "a.json: it has format 2, and this version reads format 1" in stderr
    assert stdout.startswith("m: damaged\n")


def test_the_name_of_another_source_is_kept_unless_the_files_are_the_same(inferd, home):
    path = write(home / "m.gguf")
    assert inferd("model", "import", path, "--name", "me/m").code == 0
    other = write(home / "other.gguf", WEIGHTS + b"!")
    code, _, stderr = inferd("model", "import", other, "--name", "me/m")
    assert code == 1
    assert f"error: me/m: the store has me/m from another source, {path}\n" in stderr
    assert "first: inferd model remove me/m\n" in stderr
    assert inferd("model", "list")[1] == f"me/m  100 B  {path}\n"
    same = write(home / "same.gguf")
    assert inferd("model", "import", same, "--name", "me/m").code == 0
    write(same, WEIGHTS + b"?")  # by its source it may change, as in a pull
    assert inferd("model", "import", same, "--name", "me/m").code == 0
    assert inferd("model", "list")[1] == f"me/m  101 B  {same}\n"


def test_a_file_of_which_a_part_is_missing_is_not_brought(inferd, home):
    whole = gguf(tensors=[tensor(b"t", [64])], data=bytes(256))
    code, _, stderr = inferd("model", "import", write(home / "m.gguf", whole[:-1]))
    assert code == 1
    assert stderr == (
        f"error: m: {home}/m.gguf: it has 319 bytes of 320: part is missing\n"
    )
    assert inferd("model", "list")[1] == ""
    assert inferd("model", "import", write(home / "m.gguf", whole)).code == 0


def test_an_import_without_space_leaves_nothing_and_is_told_what_frees_some(
    inferd, home, monkeypatch
):
    path = write(home / "m.gguf")
    path.chmod(0o664)  # so that it is copied
    with monkeypatch.context() as patched:
        patched.setattr(StoreDirectory, "free_bytes", lambda _: 9)
        code, _, stderr = inferd("model", "import", path)
    assert code == 1
    assert f"error: m: {home}/store has 9 bytes free, and " in stderr
    assert "hint: inferd model list shows what could be removed; " in stderr
    assert [*(home / "store/partial").iterdir()] == []


def test_pruning_lists_asks_and_removes(inferd, home, monkeypatch):
    inferd("model", "import", write(home / "m.gguf"))
    (home / "store/manifests/m.json").unlink()
    listed = f"{home}/store/blobs/{DIGEST}  0 B\n"
    told = "1 files that no model uses, 0 B to free\n"
    assert inferd("model", "prune", "--dry-run") == (0, listed, told)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, stderr = inferd("model", "prune")
    assert (code, "stdin is not a terminal" in stderr) == (2, True)
    assert inferd("model", "prune", "--yes") == (0, listed, f"{told}0 B freed\n")
    assert inferd("model", "prune")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list"], "there is no model store at"),
        (["import"], "one of FILE and --from PROGRAM is needed"),
        (["import", "no.gguf"], "no.gguf is not a file"),
        (["import", "--from", "ollama"], "no models of ollama were found"),
        (["import", "page.gguf"], "neither a GGUF file nor a model of whisper.cpp"),
        (["import", "page.gguf", "--name", "../x"], "a model's name is family/model"),
        (
            ["import", "page.gguf", "--name", "embedded:x"],
            "are those of the embedded models",
        ),
        (
            ["import", "--from", "ollama", "--name", "x"],
            "--name and --projector go with",
        ),
        (["import", "page.gguf", "no.gguf"], "one model at a time"),
        (["import", "--from", "ollama", "qwen3"], "--from ollama --only qwen3"),
    ],
)
def test_what_cannot_be_done_is_an_error(arguments, words, inferd, home, monkeypatch):
    monkeypatch.chdir(home)
    write(home / "page.gguf", b"<html>")
    code, _, stderr = inferd("model", *arguments)
    assert code in {1, 2}
    assert words in stderr
    assert stderr.startswith("error: ")


@pytest.mark.parametrize("command", ["show", "verify", "remove"])
def test_a_name_that_is_not_there_is_an_error(command, inferd, home):
    inferd("model", "import", write(home / "tiny.gguf"))
    code, _, stderr = inferd("model", command, "tony")
    assert code == 2
    assert stderr == f"error: {home}/store has no model tony; there are: tiny\n"


@each_case(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (98_362_432, "98 MB"),
        (999_600_000, "1.0 GB"),
        (7_100_000_000, "7.1 GB"),
    ],
)
def test_sizes_are_written_for_people(n_bytes, text):
    assert size(n_bytes) == text


SERVED = (
    status(
        "capabilities", backend="chat", aliases=["fast"], state="ready", model="M 1"
    ),
    status("capabilities", backend="old"),
    status("ready"),
)


def list_with(inferd, directory, *dialogue, options=()):
    with listening(directory / "admin.sock", *(dialogue or [says(*SERVED)])):
        return inferd("model", "list", "--directory", directory, *options)


def test_what_a_daemon_serves_is_listed_behind_the_store(inferd, home, short_dir):
    path = write(home / "tiny.gguf")
    inferd("model", "import", path)
    lines = "served: chat (also fast): ready, M 1\nserved: old: of an unknown state\n"
    assert list_with(inferd, short_dir) == (0, f"tiny  100 B  {path}\n{lines}", "")
    code, stdout, _ = list_with(inferd, short_dir, options=["--json"])
    stored, *served = map(json.loads, stdout.splitlines())
    assert (code, stored["name"]) == (0, "tiny")
    assert served == [
        {"backend": "chat", "aliases": ["fast"], "state": "ready", "model": "M 1"},
        {"backend": "old", "aliases": [], "state": None, "model": None},
    ]


def test_what_a_daemon_serves_is_listed_without_a_store(inferd, home, short_dir):
    code, stdout, stderr = list_with(inferd, short_dir)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("served: chat (also fast): ready")


def test_a_service_that_is_stopped_is_not_started_to_list_models(
    inferd, home, short_dir, monkeypatch
):
    path = write(home / "tiny.gguf")
    inferd("model", "import", path)
    stopped = ("inferd.service", "inactive")
    monkeypatch.setattr("inferd.cli.models.served.find_stopped", lambda _: stopped)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "admin.sock"))
        listener.listen()
        listener.setblocking(False)
        listed = inferd("model", "list", "--directory", short_dir)
        with pytest.raises(BlockingIOError):  # nobody has connected
            listener.accept()
    assert listed == (0, f"tiny  100 B  {path}\n", "")


@pytest.mark.parametrize(
    "dialogue",
    [
        says(status("ready", id=7)),
        says({"type": "reply", "ok": False, "error": "no"}),
        lambda _: None,
    ],
    ids=["no status", "refused", "closed"],
)
def test_a_daemon_that_does_not_tell_hides_no_store(inferd, home, short_dir, dialogue):
    path = write(home / "tiny.gguf")
    inferd("model", "import", path)
    code, stdout, _ = list_with(inferd, short_dir, dialogue)
    assert (code, stdout) == (0, f"tiny  100 B  {path}\n")
