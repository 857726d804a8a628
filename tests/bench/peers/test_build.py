import pytest

from bench.peers import build
from tools.wheel import CMAKE_ARGS


def test_tools_are_built_once(built):
    assert build.tool("llama-bench") == build.tools_directory() / "llama-bench"
    assert len(built) == 1


def test_other_flags_are_another_build(built, monkeypatch):
    before = build.tools_directory()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DGGML_OPENMP=OFF"))
    assert build.tools_directory() != before
    assert len(built) == 2


def test_another_choice_of_variants_is_another_build(built, monkeypatch, tmp_path):
    chosen = tmp_path / "variants.cmake"
    monkeypatch.setattr(build, "VARIANTS", chosen)
    monkeypatch.setattr(build, "CHOICE_ARGS", (f"-DHOOK={chosen}",))
    directories = set()
    for text in ("a few", "others", "a few"):
        chosen.write_text(text)
        directories.add(build.tools_directory())
    assert len(directories) == len(built) == 2


def test_without_cmake_there_are_no_tools(built, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(SystemExit, match="CMake"):
        build.tools_directory()


def test_what_was_built_moves_into_place_as_a_whole(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "libggml.so.0").write_text("code")
    (made / "libggml.so").symlink_to("libggml.so.0")
    build.keep(made, tmp_path)
    assert (tmp_path / "bin" / "libggml.so").is_symlink()
    assert (tmp_path / "bin" / "libggml.so").read_text() == "code"
    assert not (tmp_path / "bin.new").exists()


def test_the_flags_are_those_of_our_own_library():
    assert set(CMAKE_ARGS) <= set(build.FLAGS)
