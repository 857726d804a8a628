import numpy as np
import onnx
import pytest

from inferd.models.convert.onnx import read_onnx
from inferd.models.convert.source import SourceError
from tests.unit.models.convert.files import node, onnx_file, quantised, tensor

MATRIX = np.array([[1, -2, 3], [-4, 5, -127]], np.int8)
ROWS = np.array([[0, 128], [255, 7]], np.uint8)
BIAS = np.array([0.5, -1.5], np.float32)


@pytest.fixture
def read(tmp_path):
    def read(tensors, *nodes):
        path = tmp_path / "model.onnx"
        path.write_bytes(onnx_file(tensors, nodes))
        return read_onnx(path)

    return read


@pytest.mark.parametrize("is_raw", [True, False])
def test_what_was_not_quantised_is_as_it_was(read, is_raw):
    [(name, values)] = read([tensor("bert.x.bias", BIAS, is_raw=is_raw)]).items()
    assert name == "bert.x.bias"
    assert values.dtype == np.float32
    assert values.tolist() == BIAS.tolist()


@pytest.mark.parametrize(
    ("module", "operation"),
    [
        ("/bert/encoder/layer.0/attention/self/query", "MatMul_quant"),
        ("/bert/pooler/dense", "Gemm_MatMul_quant"),
        ("/classifier", "Gemm_MatMul_quant"),
    ],
)
def test_a_matrix_has_the_name_of_its_multiplication_and_is_turned(
    read, module, operation
):
    multiply = node(
        "MatMulInteger", f"{module}/{operation}", ["x", "m_17_quantized", "z", "y"]
    )
    tensors = read(quantised("m_17", MATRIX, 0.25, 3), multiply)
    assert list(tensors) == [f"{module.strip('/').replace('/', '.')}.weight"]
    [values] = tensors.values()
    assert values.dtype == np.float32
    assert values.tolist() == [[-0.5, -1.75], [-1.25, 0.5], [0.0, -32.5]]


def test_rows_keep_their_name_and_their_order(read):
    tensors = read(quantised("bert.embeddings.words.weight", ROWS, 0.5, 128))
    assert list(tensors) == ["bert.embeddings.words.weight"]
    [values] = tensors.values()
    assert values.tolist() == [[-64.0, 0.0], [63.5, -60.5]]


def test_a_negative_zero_point_is_negative(read):
    name = "bert.embeddings.words.weight"
    assert read(quantised(name, MATRIX, 1.0, -1))[name][0].tolist() == [2, -1, 4]


def test_other_nodes_and_constants_are_left_out(read):
    other = node("Add", "/bert/encoder/MatMul_quant", ["x", "m_17_quantized"])
    attention = node("MatMulInteger", "/bert/MatMul", ["x", "m_17_quantized"])
    assert read(quantised("m_17", MATRIX, 1.0, 0), other, attention) == {}


# --- damaged files ------------------------------------------------------------------


def with_changes(**changes):
    """Write a tensor that says something else of itself."""
    odd = tensor("bert.x.bias", BIAS)
    for name, value in changes.items():
        setattr(odd, name, value)
    return odd


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (with_changes(raw_data=bytes(7)), "buffer size must be a multiple"),
        (with_changes(raw_data=bytes(4)), "cannot reshape array of size 1"),
        (with_changes(data_type=99), "99"),
        (with_changes(data_type=0), "UNDEFINED"),
        (with_changes(data_location=onnx.TensorProto.EXTERNAL), "is in another file"),
    ],
)
def test_a_tensor_that_is_not_of_its_size_or_type_is_refused(read, odd, reason):
    with pytest.raises(SourceError, match=rf"^model\.onnx: .*{reason}"):
        read([odd])


@pytest.mark.parametrize(
    ("tensors", "inputs"),
    [
        (quantised("m", MATRIX, 1.0, 0)[:2], ["x", "m_quantized"]),
        (quantised("m", MATRIX, 1.0, 0), ["x", "n_quantized"]),
        (quantised("m", MATRIX, 1.0, 0), ["x"]),
    ],
)
def test_a_matrix_without_its_parts_is_refused(read, tensors, inputs):
    with pytest.raises(SourceError, match=r"^model\.onnx: "):
        read(tensors, node("MatMulInteger", "/bert/MatMul_quant", inputs))


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF", onnx_file([tensor("a", BIAS)])[:-9]],
    ids=["other", "early"],
)
def test_a_file_that_is_not_onnx_or_ends_early_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"^model\.onnx: Error parsing message"):
        read_onnx(path)
