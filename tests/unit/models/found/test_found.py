"""The stores of other programs, laid out as those programs do."""

import hashlib
import json

import pytest

from inferd.models.found.catalogue import PROGRAMS, find_models
from inferd.models.found.model import TooManyFilesError, group_files
from inferd.models.store.names import check_name

WEIGHTS = b"GGUF weights"
PROJECTOR = b"GGUF projector"


def contents(directory):
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def found(program, home, **environ):
    before = contents(home)
    models = [*find_models(program, environ, home)]
    assert contents(home) == before
    for model in models:
        assert check_name(model.name)
        assert model.program == program
    return models


def write(path, data=WEIGHTS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- Ollama ---------------------------------------------------------------------------


def add_ollama(models, names, *layers, has_blobs=True):
    """Lay out a model as `ollama pull` does (a manifest of an OCI image, and blobs)."""
    entries = []
    for kind, data in layers:
        digest = hashlib.sha256(data).hexdigest()
        entries.append(
            {
                "mediaType": f"application/vnd.ollama.image.{kind}",
                "digest": f"sha256:{digest}",
                "size": len(data),
            }
        )
        if has_blobs:
            write(models / "blobs" / f"sha256-{digest}", data)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "x", "digest": "sha256:" + "0" * 64, "size": 5},
        "layers": entries,
    }
    write(models.joinpath("manifests", *names), json.dumps(manifest).encode())


def test_ollama_s_models_are_found(tmp_path):
    models = tmp_path / ".ollama" / "models"
    layers = (("model", WEIGHTS), ("template", b"{{ .Prompt }}"), ("license", b"MIT"))
    add_ollama(models, ("host", "library", "qwen3", "0.6b"), *layers)
    add_ollama(
        models,
        ("host", "someone", "seer", "latest"),
        *(("model", WEIGHTS), ("projector", PROJECTOR)),
    )
    first, second = found("ollama", tmp_path)
    assert first.name == "qwen3:0.6b"
    assert first.source == "ollama:qwen3:0.6b"
    [file] = first.files
    assert file.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert file.path.read_bytes() == WEIGHTS
    assert second.name == "someone/seer:latest"
    assert [file.role for file in second.files] == ["model", "projector"]
    assert first.missing == second.missing == ""


def test_ollama_s_own_setting_says_where(tmp_path):
    add_ollama(tmp_path / "x", ("host", "library", "a", "b"), ("model", WEIGHTS))
    assert found("ollama", tmp_path / "home", OLLAMA_MODELS=str(tmp_path / "x"))


@pytest.mark.parametrize("has", ["nothing", "half", "a partial file"])
def test_an_ollama_store_in_mid_pull_says_what_is_missing(tmp_path, has):
    models = tmp_path / ".ollama" / "models"
    add_ollama(models, ("h", "library", "a", "b"), ("model", WEIGHTS), has_blobs=False)
    blob = models / "blobs" / f"sha256-{hashlib.sha256(WEIGHTS).hexdigest()}"
    if has == "half":
        write(blob, WEIGHTS[:4])
    if has == "a partial file":
        write(blob.with_name(f"{blob.name}-partial"))
    [model] = found("ollama", tmp_path)
    assert model.missing == f"{blob.name} is missing or not complete"


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (b"{", "its manifest is not one of Ollama's"),
        (b'{"layers": []}', "it has no model file"),
        (
            (
                b'{"layers": [{"digest": "sha256:../../../secret", "size": 1, "mediaType": '
                b'"application/vnd.ollama.image.model"}]}'
            ),
            "its manifest has a digest that is no SHA-256",
        ),
    ],
)
def test_a_manifest_that_is_not_ollama_s_says_so(tmp_path, data, missing):
    write(tmp_path / ".ollama/models/manifests/h/library/a/b", data)
    [model] = found("ollama", tmp_path)
    assert model.missing == missing


# --- Hugging Face ----------------------------------------------------------------------


def add_hugging_face(hub, repository, commit, files, *, is_main=True):
    """Lay out a repository as `huggingface_hub` does: links from snapshots to blobs."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    for name, data in files.items():
        blob = write(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
        path = folder / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(blob)
    if is_main:
        write(folder / "refs" / "main", commit.encode())


def test_hugging_face_s_models_are_found(tmp_path):
    hub = tmp_path / ".cache" / "huggingface" / "hub"
    old, new = (
        {"m-Q4_K_M.gguf": b"GGUF old"},
        {
            "m-Q4_K_M.gguf": WEIGHTS,
            "m-Q8_0.gguf": b"GGUF larger",
            "README.md": b"words",
            "mmproj-m-f16.gguf": PROJECTOR,
        },
    )
    add_hugging_face(hub, "org/m-GGUF", "0123abcd", new)
    add_hugging_face(hub, "org/m-GGUF", "ffff0000", old, is_main=False)
    first, second = found("huggingface", tmp_path)
    assert first.name == "org/m-GGUF:m-Q4_K_M"
    assert first.source == "hf:org/m-GGUF/m-Q4_K_M.gguf"
    assert first.revision == "0123abcd"
    assert [file.role for file in first.files] == ["model", "projector"]
    assert first.files[0].path.read_bytes() == WEIGHTS
    assert second.name == "org/m-GGUF:m-Q8_0"


@pytest.mark.parametrize(
    ("variable", "path"), [("HF_HUB_CACHE", "x"), ("HF_HOME", "x/hub")]
)
def test_hugging_face_s_own_settings_say_where(tmp_path, variable, path):
    add_hugging_face(tmp_path / path, "o/m", "0a", {"m.gguf": WEIGHTS})
    environ = {variable: str(tmp_path / "x")}
    assert found("huggingface", tmp_path / "home", **environ)


def test_a_download_that_is_not_complete_is_not_found(tmp_path):
    hub = tmp_path / "hub"
    write(hub / "models--o--m" / "blobs" / "0a.incomplete")
    (hub / "models--o--m" / "snapshots" / "0a").mkdir(parents=True)
    (hub / "models--o--m/snapshots/0a/m.gguf").symlink_to("../../blobs/0a")
    assert found("huggingface", tmp_path, HF_HUB_CACHE=str(hub)) == []


# --- folders ------------------------------------------------------------------------------


def test_lm_studio_s_models_are_found(tmp_path):
    folder = tmp_path / ".lmstudio/models/maker/m-GGUF"
    for name in ("m-Q4.gguf", "mmproj-m.gguf", "m-Q4.gguf.part"):
        write(folder / name)
    [model] = found("lmstudio", tmp_path)
    assert model.name == "maker/m-GGUF:m-Q4"
    assert [file.name for file in model.files] == ["m-Q4.gguf", "mmproj-m.gguf"]


def test_llama_cpp_s_models_are_found(tmp_path):
    write(tmp_path / ".cache/llama.cpp/org_m_m-q4.gguf")
    write(tmp_path / ".cache/llama.cpp/org_m_m-q4.gguf.json")
    [model] = found("llamacpp", tmp_path)
    assert model.name == "llamacpp:org_m_m-q4"
    [other] = found("llamacpp", tmp_path, LLAMA_CACHE=str(tmp_path / ".cache"))
    assert other.name == "llama.cpp:org_m_m-q4"


def test_the_parts_of_a_split_file_are_one_model(tmp_path):
    paths = [write(tmp_path / f"m-0000{n}-of-00003.gguf") for n in (3, 1, 2)]
    [group] = group_files(paths)
    assert [file.name[:7] for file in group.files] == ["m-00001", "m-00002", "m-00003"]
    assert group.missing == ""
    [group] = group_files(paths[:2])
    assert group.missing == "part 2 of 3 is missing"


def test_models_that_differ_in_their_numbers_of_parts_are_several(tmp_path):
    names = [
        *("m.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"),
        *("m-00001-of-00003.gguf", "n-00001-of-00001.gguf"),
    ]
    groups = group_files([write(tmp_path / name) for name in names])
    assert {each.stem: (len(each.files), each.missing) for each in groups} == {
        "m": (1, ""),
        "m-of-2": (2, ""),
        "m-of-3": (1, "part 2 of 3 is missing"),
        "n": (1, ""),
    }


def test_names_that_would_not_do_are_changed(tmp_path):
    write(tmp_path / ".lmstudio/models/a b\n/..x/weird name \x1b[m.gguf")
    [model] = found("lmstudio", tmp_path)
    assert model.name == "a-b/x:weird-name-m"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_not_there_has_no_models(program, tmp_path):
    assert found(program, tmp_path) == []


def test_a_directory_with_too_many_files_is_no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("inferd.models.found.model.FOUND_MAX_FILES", 2)
    for name in "abc":
        write(tmp_path / ".lmstudio/models" / name)
    with pytest.raises(TooManyFilesError, match="has over 2 files"):
        found("lmstudio", tmp_path)


def test_a_directory_that_may_not_be_read_hides_no_other(tmp_path, monkeypatch):
    def find(directory):
        if directory == tmp_path / ".ollama" / "models":
            return real(directory)
        raise PermissionError(13, "Permission denied", str(directory))

    real = PROGRAMS["ollama"].find
    monkeypatch.setitem(PROGRAMS, "ollama", PROGRAMS["ollama"]._replace(find=find))
    with pytest.raises(PermissionError, match="/usr/share/ollama"):
        found("ollama", tmp_path)
    layers = ("model", WEIGHTS)
    add_ollama(tmp_path / ".ollama/models", ("h", "library", "a", "b"), layers)
    assert len(found("ollama", tmp_path)) == 1
