import hashlib
import os

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.llama.files import check_gguf, check_sha256

BLOCK_BYTES = 8 * 1024 * 1024


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def header(version=3, magic=b"GGUF", size=24):
    return (magic + version.to_bytes(4, "little")).ljust(size, b"\0")


@pytest.mark.parametrize("version", [2, 3])
def test_a_gguf_file_is_one(path, version):
    path.write_bytes(header(version) + b"weights")
    check_gguf(path)


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", header(size=23), header(magic=b"GGML"), b"<html>" * 9]
)
def test_what_is_no_gguf_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(LoadError, match=f"^not a GGUF file: {path}$"):
        check_gguf(path)


@pytest.mark.parametrize("version", [0, 1, 4, 3 << 24])
def test_a_version_that_llama_cpp_does_not_read_is_refused(path, version):
    path.write_bytes(header(version))
    with pytest.raises(LoadError, match=rf"^GGUF version {version} is not supported"):
        check_gguf(path)


def test_a_file_that_is_not_there_is_named(path):
    with pytest.raises(LoadError, match=f"^model file not found: {path}$"):
        check_gguf(path)


def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(LoadError, match="not found"):
        check_gguf(path)


def test_a_path_that_cannot_be_looked_at_is_one_line(path):
    with pytest.raises(LoadError, match="File name too long"):
        check_gguf(path.with_name("x" * 300))


def test_a_file_has_the_hash_that_it_must_have(path):
    path.write_bytes(b"weights")
    check_sha256(path, hashlib.sha256(b"weights").hexdigest(), lambda: None)
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(LoadError, match=f"^SHA-256 of {path} is .*, expected {other}$"):
        check_sha256(path, other, lambda: None)


@pytest.mark.parametrize(("size", "n_signs"), [(0, 0), (1, 1), (BLOCK_BYTES + 1, 2)])
def test_each_block_that_is_hashed_is_a_sign_of_life(path, size, n_signs):
    path.touch()
    os.truncate(path, size)
    signs: list[None] = []
    expected = hashlib.sha256(bytes(size)).hexdigest()
    check_sha256(path, expected, lambda: signs.append(None))
    assert len(signs) == n_signs
