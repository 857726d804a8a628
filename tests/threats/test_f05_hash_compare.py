import ast
import hashlib

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.model_file import check_sha256
from tests.fakes.gguf_bytes import gguf
from tests.fakes.source import calls, tree_of

CONTENT = gguf() + b"and weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def flipped(place: int) -> str:
    other = "0" if SHA256[place] != "0" else "1"
    return SHA256[:place] + other + SHA256[place + 1 :]


@pytest.fixture
def model(short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(CONTENT)
    return ModelFile(path)


def test_the_right_hash_is_accepted(model):
    check_sha256(model, SHA256, lambda: None)


@pytest.mark.parametrize("place", [0, 31, 63])
def test_a_hash_is_refused_wherever_it_differs(model, place):
    with pytest.raises(LoadError, match=f"expected {flipped(place)}"):
        check_sha256(model, flipped(place), lambda: None)


@pytest.mark.parametrize("n_digits", [0, 1, 63])
def test_a_part_of_the_hash_is_not_enough(model, n_digits):
    with pytest.raises(LoadError):
        check_sha256(model, SHA256[:n_digits], lambda: None)


def test_what_decides_is_a_comparison_in_constant_time():
    [function] = [
        node
        for node in ast.walk(tree_of("worker/model_file.py"))
        if isinstance(node, ast.FunctionDef) and node.name == "check_sha256"
    ]
    [decision] = [node for node in ast.walk(function) if isinstance(node, ast.If)]
    [call] = calls(decision.test, "hmac.compare_digest")
    assert {ast.unparse(each) for each in call.args} == {"actual", "expected"}
    assert not [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
