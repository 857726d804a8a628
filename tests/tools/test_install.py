"""What `make install` copies."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from inferd.models.embedded import CHAT
from tools import install
from tools.releases import MODELS_LISTED

WEIGHTS = b"weights"
MODEL = replace(
    CHAT,
    file_name="tiny.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    size_bytes=len(WEIGHTS),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    """A cache with an embedded model, and one that only benchmarks use."""
    tmp_path.chmod(0o755)
    cache = tmp_path / "cache"
    bench = cache / "models" / hashlib.sha256(b"bench").hexdigest() / "bench.gguf"
    for path, content in ((MODEL.path_in(cache), WEIGHTS), (bench, b"bench")):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    monkeypatch.setenv("INFERD_CACHE_DIR", str(cache))
    monkeypatch.setattr(install, "EMBEDDED_MODELS", {"chat": MODEL})
    return cache


def test_no_model_is_copied_but_those_that_have_a_name(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    release, models = tmp_path / "release", tmp_path / "models"
    (release / MODELS_LISTED).parent.mkdir(parents=True)
    install.copy_models(release, models)
    files = [path for path in models.rglob("*") if path.is_file()]
    assert files == [models / MODEL.sha256 / "tiny.gguf"]
    assert files[0].read_bytes() == WEIGHTS
    assert (release / MODELS_LISTED).read_text() == f"{MODEL.sha256}\n"
