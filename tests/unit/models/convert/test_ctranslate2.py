import numpy as np
import numpy.typing as npt
import pytest

from inferd.models.convert.ctranslate2 import read_ctranslate2
from inferd.models.convert.source import SourceError
from tests.unit.models.convert.files import ctranslate2

TENSORS: dict[str, npt.NDArray[np.generic]] = {
    "a/weight": np.arange(6, dtype=np.float16).reshape(2, 3) / 8,
    "a/bias": np.array([1.5, -2.5], np.float32),
    "num_heads": np.array(6, np.int16),
    "is_on": np.array(1, np.int8),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.bin"


def test_tensors_come_out_as_floats_of_the_same_shape_and_value(path):
    path.write_bytes(ctranslate2(TENSORS))
    read = read_ctranslate2(path, kind="WhisperSpec")
    assert list(read) == list(TENSORS)
    for name, values in TENSORS.items():
        assert read[name].dtype == np.float32
        assert read[name].shape == values.shape
        assert np.array_equal(read[name], values)


@pytest.mark.parametrize(("kind", "version"), [("OtherSpec", 6), ("WhisperSpec", 5)])
def test_a_file_of_another_kind_or_version_is_refused(path, kind, version):
    path.write_bytes(ctranslate2(TENSORS, kind, version))
    with pytest.raises(
        SourceError, match=r"^model\.bin: it is \(.*, expected \(6, 'Whi"
    ):
        read_ctranslate2(path, kind="WhisperSpec")


@pytest.mark.parametrize("size", [0, 3, 20, 40, 100])
def test_a_file_that_ends_early_is_refused(path, size):
    path.write_bytes(ctranslate2(TENSORS)[:size])
    with pytest.raises(SourceError, match=r"^model\.bin: ."):
        read_ctranslate2(path, kind="WhisperSpec")
