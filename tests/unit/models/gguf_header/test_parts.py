import pytest

from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.parts import other_parts


def test_a_file_that_is_not_split_has_no_other_parts(tmp_path):
    for n_parts in (0, 1):
        assert other_parts(tmp_path / "m.gguf", n_parts) == []


def test_the_other_parts_follow_from_the_name_of_the_first(tmp_path):
    found = other_parts(tmp_path / "m-00001-of-00003.gguf", 3)
    assert [path.name for path in found] == [
        "m-00002-of-00003.gguf",
        "m-00003-of-00003.gguf",
    ]


@pytest.mark.parametrize(
    ("name", "n_parts", "reason"),
    [
        ("m-00001-of-00257.gguf", 257, "257 parts, over 256"),
        ("m-00002-of-00003.gguf", 3, "must end in -00001-of-00003.gguf"),
        ("m-00001-of-00004.gguf", 3, "must end in -00001-of-00003.gguf"),
    ],
)
def test_parts_that_cannot_be_found_are_refused(name, n_parts, reason, tmp_path):
    with pytest.raises(ModelFileError, match=reason):
        other_parts(tmp_path / name, n_parts)
