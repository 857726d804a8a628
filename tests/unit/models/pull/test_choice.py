import pytest

from inferd.models.pull.choice import choose
from inferd.models.pull.errors import PullError
from inferd.models.pull.messages import HubFile
from inferd.models.pull.source import HubSource, parse_source
from tests.cases import each_case

QUANTS = ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf"]
SPLIT = [f"big-Q8_0-0000{n}-of-00003.gguf" for n in (3, 1, 2)]


def files(*paths, sha256="0" * 64):
    return [HubFile(path=path, url="", n_bytes=1, sha256=sha256) for path in paths]


def hub_source(text):
    source = parse_source(text)
    assert isinstance(source, HubSource)
    return source


def chosen(source, *paths, **options):
    choice = choose(hub_source(source), files(*paths), **options)
    return choice.name, [(each.file.path, each.role) for each in choice.files]


@each_case(
    ("source", "paths", "name", "model"),
    [
        ("hf:a/b", ["only.gguf"], "a/b:only", "only.gguf"),
        ("hf:a/b", QUANTS, "a/b:Q4_K_M", "m-Q4_K_M.gguf"),
        ("hf:a/b:q8_0", QUANTS, "a/b:q8_0", "m-Q8_0.gguf"),
        ("hf:a/b/m-Q4_K_S.gguf", QUANTS, "a/b:m-Q4_K_S", "m-Q4_K_S.gguf"),
        ("hf:a/b:Q8_0", ["Q8_0/m.gguf", "F16/m.gguf"], "a/b:Q8_0", "Q8_0/m.gguf"),
        ("hf:a/b/ggml-base.bin", ["ggml-base.bin"], "a/b:ggml-base", "ggml-base.bin"),
        ("hf:a/b", ["only.gguf", "x.bin"], "a/b:only", "only.gguf"),
    ],
)
def test_one_file_is_chosen(source, paths, name, model):
    assert chosen(source, *paths) == (name, [(model, "model")])


@pytest.mark.parametrize("source", ["hf:a/b:Q8_0", f"hf:a/b/{SPLIT[0]}"])
def test_the_parts_of_a_split_file_are_in_order(source):
    _, found = chosen(source, *SPLIT, *QUANTS[:2])
    assert found == [(path, "model") for path in sorted(SPLIT)]


def test_a_split_file_that_misses_a_part_is_refused():
    with pytest.raises(PullError, match="part 2 of 3 is missing"):
        chosen("hf:a/b", *SPLIT[:2])


@each_case(
    ("projectors", "expected"),
    [
        (["mmproj-m-f32.gguf", "mmproj-m-BF16.gguf"], "mmproj-m-BF16.gguf"),
        (["mmproj-m-bf16.gguf", "mmproj-m-F16.gguf"], "mmproj-m-F16.gguf"),
        (["mmproj-m-Q8_0.gguf", "mmproj-m-f32.gguf"], "mmproj-m-Q8_0.gguf"),
        (["mmproj.gguf"], "mmproj.gguf"),
    ],
)
def test_a_projector_goes_with_the_model(projectors, expected):
    _, found = chosen("hf:a/b", *projectors, *QUANTS)
    assert found == [("m-Q4_K_M.gguf", "model"), (expected, "projector")]
    _, found = chosen("hf:a/b", *projectors, *QUANTS, with_projector=False)
    assert found == [("m-Q4_K_M.gguf", "model")]


def test_a_projector_of_another_folder_stays_there():
    _, found = chosen("hf:a/b/x/m.gguf", "x/m.gguf", "y/m.gguf", "y/mmproj.gguf")
    assert found == [("x/m.gguf", "model")]
    _, found = chosen("hf:a/b/x/m.gguf", "x/m.gguf", "mmproj.gguf")
    assert found[1] == ("mmproj.gguf", "projector")


@each_case(
    ("source", "paths", "words", "hint"),
    [
        ("hf:a/b:Q2", QUANTS, "no model of Q2; it has: m-Q4_K_M.gguf, ", "m-Q4_K_M"),
        ("hf:a/b:Q4", QUANTS, "several models of Q4;", "hf:a/b/m-Q4_K_M.gguf"),
        ("hf:a/b@x", ["a.gguf", "b.gguf"], "no model of Q4_K_M", "hf:a/b/a.gguf@x"),
        ("hf:a/b/no.gguf", QUANTS, "no model file no.gguf", "hf:a/b/m-Q4"),
        ("hf:a/b", [], "no model in GGUF files", "GGUF"),
        ("hf:a/b", ["mmproj.gguf"], "no model in GGUF files", "GGUF"),
        ("hf:a/b:Q8_0", ["x-Q8_0.gguf", "y-Q8_0.gguf"], "several models of", "x-Q8_0"),
    ],
)
def test_what_fits_nothing_is_told_what_there_is(source, paths, words, hint):
    with pytest.raises(PullError, match=words) as raised:
        chosen(source, *paths)
    assert hint in raised.value.hint


def test_a_file_without_a_digest_is_refused():
    with pytest.raises(PullError, match=r"no SHA-256 of m\.gguf"):
        choose(hub_source("hf:a/b"), files("m.gguf", sha256=""))
