import re
from pathlib import Path

import pytest

from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import GgufHeader
from inferd.models.gguf_header.parts import (
    PartFault,
    other_parts,
    part_fault,
    part_name,
    parts_beside,
)
from tests.cases import each_case


def header(part: int, n_parts: int = 3, **fields) -> GgufHeader:
    return GgufHeader(n_tensors=2, n_parts=n_parts, part=part, **fields)


def whole_model() -> list[GgufHeader]:
    first = header(0, n_all_tensors=6, architecture=b"llama")
    return [first, *(header(part, n_all_tensors=6) for part in (1, 2))]


def test_the_name_of_a_part_has_its_number_and_how_many_there_are():
    assert part_name("m-q4-00002-of-00003.gguf") == ("m-q4", 2, 3)
    for other in (
        "m.gguf",
        "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf",
        "m-1-of-3",
    ):
        assert part_name(other) is None


def test_a_file_that_is_not_split_has_no_other_parts(tmp_path):
    for n_parts in (0, 1):
        assert other_parts(tmp_path / "m.gguf", header(0, n_parts)) == []
    for name in ("m.gguf", "m-00001-of-00001.gguf", "m-00002-of-00003.gguf"):
        assert parts_beside(tmp_path / name) == []


def test_the_other_parts_follow_from_the_name_of_the_first(tmp_path):
    expected = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (2, 3)]
    first = tmp_path / "m-00001-of-00003.gguf"
    assert other_parts(first, header(0)) == parts_beside(first) == expected


@pytest.mark.parametrize(
    ("name", "found", "reason"),
    [
        ("m-00001-of-00257.gguf", header(0, 257), "257 parts, over 256"),
        ("m-00002-of-00003.gguf", header(1), "part 2 of 3: name the first part"),
        ("m.gguf", header(0), "first of 3 parts, so its .* -00001-of-00003.gguf"),
        ("m-00001-of-00004.gguf", header(0), "must end in -00001-of-00003.gguf"),
    ],
)
def test_parts_that_cannot_be_found_are_refused(name, found, reason, tmp_path):
    with pytest.raises(ModelFileError, match=reason):
        other_parts(tmp_path / name, found)


def test_as_many_parts_as_no_model_has_are_not_looked_for():
    with pytest.raises(ModelFileError, match="99999 parts, over 256"):
        parts_beside(Path("m-00001-of-99999.gguf"))


def test_the_parts_of_one_model_belong_together():
    assert part_fault(whole_model()) is None
    assert part_fault([header(0, 1)]) is None
    assert part_fault([header(7, 0)]) is None


@each_case(
    ("index", "other", "text"),
    [
        (0, header(1, n_all_tensors=6), "part 2 of 3, and part 1 belongs"),
        (1, header(2, n_all_tensors=6), "part 3 of 3, and part 2 belongs in its place"),
        (2, header(1, n_all_tensors=6), "part 2 of 3, and part 3 belongs in its place"),
        (
            1,
            header(1, 4, n_all_tensors=6),
            "part 2 of 4, and the first file is part 1 of",
        ),
        (2, header(0, 0), "it is a whole model, and the first file is part 1 of 3"),
        (
            2,
            header(2, n_all_tensors=7),
            "model has 7 tensors, and that of the first.* 6",
        ),
        (
            1,
            header(1, n_all_tensors=6, architecture=b"qwen3"),
            "'qwen3', and .* 'llama'",
        ),
        (
            1,
            header(1, n_all_tensors=6)._replace(n_tensors=1),
            "3 parts have 5 tensors of 6",
        ),
    ],
)
def test_a_part_of_another_model_is_told(index, other, text):
    files = whole_model()
    files[index] = other
    fault = part_fault(files)
    assert fault is not None
    assert fault.part == (0 if "parts have" in text else index)
    assert re.search(text, fault.text)


def test_files_that_are_too_few_or_too_many_are_told():
    assert part_fault(whole_model()[:2]) == PartFault(
        0, "it is in 3 files, and 2 are given"
    )
    fault = part_fault([header(0, 1), header(0, 1)])
    assert fault == PartFault(1, "it is a whole model, and part 2 belongs in its place")
    fault = part_fault([*whole_model(), header(3, n_all_tensors=6)])
    assert fault == PartFault(0, "it is in 3 files, and 4 are given")
