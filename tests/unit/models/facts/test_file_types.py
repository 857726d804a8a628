import gguf as reference

from inferd.models.facts.file_types import FILE_TYPES, quantisation
from tests.cases import each_case


def test_names_of_mixtures_are_those_of_the_format():
    for number, name in FILE_TYPES.items():
        theirs = reference.LlamaFileType(number).name
        assert theirs.removeprefix("ALL_").removeprefix("MOSTLY_") in {
            name,
            f"{name}_MOE",
        }


@each_case(
    ("file_type", "types", "name"),
    [
        (15, {"Q6_K": 9, "Q4_K": 5}, "Q4_K_M"),
        (None, {"Q6_K": 9, "Q4_K": 5}, "Q6_K"),
        (1024, {"F16": 1}, "F16"),
        (None, {}, "none"),
    ],
)
def test_a_quantisation_has_the_file_s_name_or_that_of_most_bytes(
    file_type, types, name
):
    assert quantisation(file_type, types) == name
