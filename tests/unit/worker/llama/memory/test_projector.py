import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.memory import projector as module
from inferd.worker.llama.memory.projector import projector_bytes
from tests.model.tiny_projector import write_tiny_projector

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("loaded")]


def taken(path):
    file = ModelFile(path, "mmproj file")
    return projector_bytes(file, uses_accelerator=False)


def test_a_projectors_memory_is_its_weights_and_compute_buffers(tmp_path):
    path = write_tiny_projector(tmp_path / "sight.gguf")
    host, accelerator = taken(path)
    n_bytes = path.stat().st_size
    assert n_bytes * 0.8 < host < n_bytes + 2**20
    assert accelerator == {}


def test_one_for_both_takes_more(tmp_path):
    sight = taken(write_tiny_projector(tmp_path / "sight.gguf"))
    both = taken(write_tiny_projector(tmp_path / "both.gguf", hears=True))
    assert both.host > sight.host


def test_a_refusal_quotes_the_message_of_libmtmd(tmp_path):
    path = write_tiny_projector(tmp_path / "some.gguf")
    path.write_bytes(path.read_bytes().replace(b"mlp", b"mlq"))
    with pytest.raises(LoadError, match=f"{path}: .* unknown projector type: mlq"):
        taken(path)


def test_other_accounts_than_we_know_are_found_out(tmp_path, monkeypatch):
    path = write_tiny_projector(tmp_path / "some.gguf")
    monkeypatch.setattr(module, "_SYMBOL", "not_there")
    with pytest.raises(LoadError, match="run: make setup"):
        taken(path)
