import numpy as np
import pytest

from inferd.cli.batch import output as outputs
from inferd.cli.batch.npy import HEADER_BYTES, VectorFile
from inferd.cli.batch.output import LineOutput
from inferd.cli.console import CommandError


def test_lines_are_gone_on_with_after_the_last_whole_one(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "READ_BYTES", 5)
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n"')
    with LineOutput(path, resumes=True) as output:
        assert output.n_done == 2
        output.write({"n": 3})
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'


def test_a_file_that_has_results_is_not_overwritten(tmp_path):
    path = tmp_path / "out.jsonl"
    for resumes in (False, False, True):  # a new one, an empty one, one to go on with
        with LineOutput(path, resumes=resumes) as output:
            assert output.n_done == 0
    path.write_bytes(b"x\n")
    with pytest.raises(CommandError, match="exists"):
        LineOutput(path)
    with pytest.raises(CommandError, match="--resume needs --output"):
        LineOutput(None, resumes=True)
    with pytest.raises(CommandError, match="No such file"):
        LineOutput(tmp_path / "nowhere" / "out.jsonl")


def test_vectors_are_an_array_that_numpy_reads_after_each_batch(tmp_path):
    path = tmp_path / "x.npy"
    with VectorFile(path) as file:
        file.write([[0.5, -1.0, 2.0]])
        assert np.load(path).tolist() == [[0.5, -1.0, 2.0]]
        file.write([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]])
    array = np.load(path)
    assert (array.shape, array.dtype) == ((3, 3), np.float32)
    assert array[2].tolist() == [3.0, 3.0, 3.0]


def test_rows_are_gone_on_with_after_the_last_whole_one(tmp_path):
    path = tmp_path / "x.npy"
    with VectorFile(path) as file:
        file.write([[1.0, 2.0], [3.0, 4.0]])
    with path.open("ab") as torn:
        torn.write(b"abc")
    with VectorFile(path, resumes=True) as file:
        assert file.n_done == 2
        file.write([[5.0, 6.0]])
        with pytest.raises(CommandError, match="vectors of 2 numbers, not 3"):
            file.write([[1.0, 2.0, 3.0]])
    assert np.load(path).tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_a_file_of_another_kind_is_not_gone_on_with(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((2, 2), dtype=np.float64))
    with pytest.raises(CommandError, match="is no file of inferd embed"):
        VectorFile(path, resumes=True)
    with VectorFile(tmp_path / "y.npy") as file:
        file.write([[1.0, 2.0]])
    short = (tmp_path / "y.npy").read_bytes()[: HEADER_BYTES + 4]
    (tmp_path / "y.npy").write_bytes(short)
    with pytest.raises(CommandError, match="fewer rows"):
        VectorFile(tmp_path / "y.npy", resumes=True)
