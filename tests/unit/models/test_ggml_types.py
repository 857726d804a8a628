import gguf as reference

from inferd.models.ggml_types import BLOCKS


def test_sizes_of_blocks_are_those_of_the_format():
    known = {int(kind): sizes for kind, sizes in reference.GGML_QUANT_SIZES.items()}
    never_stored = {
        reference.GGMLQuantizationType.Q8_1,
        reference.GGMLQuantizationType.Q8_K,
    }
    assert {
        kind: sizes for kind, sizes in known.items() if kind not in never_stored
    } == BLOCKS
