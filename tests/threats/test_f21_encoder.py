import numpy as np
import pytest

from inferd.worker.llama.texts import unit_vectors
from tests.daemon.harness import llamacpp
from tests.model.tiny import write_tiny_bert
from tests.unit.worker.llama.running import change_rows, load

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture
def spoilt(tmp_path):
    """A model that makes no number of a text with a "z" in it."""
    backend, _ = load(write_tiny_bert(tmp_path / "bert.gguf"))
    token = backend._model.tokenize("z")[1]
    path = write_tiny_bert(tmp_path / "spoilt.gguf", n_ctx=64)
    return change_rows(path, "token_embd.weight", token, np.nan)


def test_a_text_that_breaks_the_numbers_costs_its_request_alone(spoilt, make_daemon):
    daemon = make_daemon({"backend": [llamacpp(spoilt)]}).start()
    [worker] = daemon.worker_pids()
    with daemon.connect("infer.embed.sock") as client:
        [good] = client.ask({"id": "good", "input": ["hello"]})
        [bad] = client.ask({"id": "bad", "input": ["hello", "z"]})
        [long] = client.ask({"id": "long", "input": ["hello", "hello " * 100]})
        [again] = client.ask({"id": "again", "input": ["hello"]})
    assert (bad["type"], bad["code"]) == ("error", "internal")
    assert (long["type"], long["code"]) == ("error", "invalid_request")
    assert "input[1]" in long["message"]
    assert again["embeddings"] == good["embeddings"]
    assert daemon.worker_pids() == [worker]


def test_a_vector_of_nothing_is_no_division_by_it():
    assert (unit_vectors(np.zeros((1, 3), np.float32)) == 0).all()
