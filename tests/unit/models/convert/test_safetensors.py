import numpy as np

from inferd.models.convert.safetensors import read_safetensors
from tests.unit.models.convert.files import safetensors, weights


def test_tensors_come_out_as_they_went_in_and_nothing_else_does(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(weights()))
    read = read_safetensors(path)
    assert list(read) == list(weights())
    for name, values in weights().items():
        assert read[name].dtype == np.float32
        assert np.array_equal(read[name], values)
