import json

import numpy as np
import pytest

from inferd.models.convert.safetensors import read_safetensors
from inferd.models.convert.source import SourceError
from tests.unit.models.convert.files import safetensors, weights


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_tensors_are_read_as_they_were_written_and_position_ids_are_skipped(path):
    path.write_bytes(safetensors(weights()))
    read = read_safetensors(path)
    assert set(read) == set(weights())
    for name, values in weights().items():
        assert read[name].dtype == np.float32
        assert np.array_equal(read[name], values)


def with_entry(**changes):
    """Write a file whose header says something else of its one tensor."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    header = json.dumps({"a": entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF",
        safetensors(weights())[:-1],
        safetensors(weights())[:100],
        (1 << 62).to_bytes(8, "little") + b"{}",
        with_entry(shape=[1 << 40]),
        with_entry(data_offsets=[0, 1 << 40]),
        with_entry(data_offsets=[8, 0]),
        with_entry(dtype="F99"),
    ],
    ids=[
        *("empty", "other", "one-byte-short", "in-the-header", "huge-header"),
        *("huge-shape", "huge-offset", "reversed-offsets", "unknown-type"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(path, content):
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"^model\.safetensors: ."):
        read_safetensors(path)
