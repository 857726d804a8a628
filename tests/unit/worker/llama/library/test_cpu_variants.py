import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from inferd.ipc.worker import CpuVariant, Loading
from inferd.worker.backend import LoadError
from inferd.worker.llama.library.cpu_variants import (
    UNSAFE,
    choose,
    find_variants,
    load,
    pick,
    score,
)

pytestmark = pytest.mark.model

SCORES = st.dictionaries(
    st.sampled_from(["x64", "haswell", "skylakex", "zen4", "alderlake"]),
    st.integers(0, 4),
)


@pytest.fixture
def library(tmp_path):
    """Compile C code into a variant of this name; give its path."""

    def compile_it(name, code):
        path = tmp_path / f"libggml-cpu-{name}.so"
        compiler = shutil.which("cc")
        assert compiler
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path],
            input=code,
            text=True,
            check=True,
        )
        return path

    return compile_it


def ignore(_: Loading | CpuVariant) -> None:
    pass


@pytest.fixture
def asked(monkeypatch):
    """Paths of variants that were asked; all of them suit."""
    paths = []

    def ask(path):
        paths.append(path)
        return 5

    monkeypatch.setattr("inferd.worker.llama.library.cpu_variants.score", ask)
    return paths


# --- the choice -------------------------------------------------------------------------


def test_the_best_comes_first_and_the_next_best_after_it():
    scores = {"x64": 1, "haswell": 64, "alderlake": 128, "skylakex": 0}
    assert choose(scores) == CpuVariant(name="alderlake", fallback="haswell")
    assert choose({"x64": 1, "skylakex": 0}) == CpuVariant(name="x64")


@given(SCORES)
def test_stepping_down_visits_all_that_fit_by_their_scores_and_ends(scores):
    fit = {name for name in scores if scores[name] > 0}
    visited: list[str] = []
    while set(visited) != fit:
        chosen = choose({each: scores[each] for each in scores.keys() - set(visited)})
        visited.append(chosen.name)
        assert bool(chosen.fallback) == (set(visited) != fit)
    assert [scores[each] for each in visited] == sorted(
        (scores[each] for each in fit), reverse=True
    )
    with pytest.raises(LoadError, match="make setup"):
        choose({each: scores[each] for each in scores.keys() - set(visited)})


# --- files ------------------------------------------------------------------------------


def test_variants_are_found_by_their_files(tmp_path):
    for leaf in (
        "libggml-cpu.so",
        "libggml-cpu-x64.so",
        "libggml-cpu-x64.so.0",
        "a.so",
    ):
        (tmp_path / leaf).touch()
    assert find_variants(tmp_path) == {"x64": tmp_path / "libggml-cpu-x64.so"}


@pytest.mark.slow
def test_a_variant_reports_its_score(library):
    assert score(library("good", "int ggml_backend_score(void) { return 7; }")) == 7
    assert score(library("mute", "int nothing;")) == 0


def test_a_file_that_is_not_a_library_has_a_score_of_0(tmp_path):
    path = tmp_path / "libggml-cpu-text.so"
    path.write_text("text")
    assert score(path) == 0


def test_the_unsafe_are_not_even_asked(asked, tmp_path):
    paths = {name: tmp_path / name for name in ("x64", *UNSAFE)}
    assert pick(paths, ignore, wanted=None, crashed=()) == CpuVariant(name="x64")
    assert asked == [tmp_path / "x64"]


def test_each_is_reported_before_it_is_opened_and_one_that_crashed_is_not_opened(
    asked, tmp_path
):
    paths = {name: tmp_path / name for name in ("alderlake", "haswell", "x64")}
    seen: list[tuple[Loading | CpuVariant, int]] = []
    pick(
        paths,
        lambda variant: seen.append((variant, len(asked))),
        wanted=None,
        crashed=["alderlake"],
    )
    assert seen == [
        (CpuVariant(name="haswell", fallback="x64", is_asked=True), 0),
        (CpuVariant(name="x64", fallback="haswell", is_asked=True), 1),
    ]
    assert asked == [tmp_path / "haswell", tmp_path / "x64"]


def test_the_last_that_has_not_crashed_is_asked_without_a_fallback(asked, tmp_path):
    seen: list[Loading | CpuVariant] = []
    paths = {name: tmp_path / name for name in ("haswell", "x64", *UNSAFE)}
    pick(paths, seen.append, wanted=None, crashed=["haswell"])
    assert seen == [CpuVariant(name="x64", is_asked=True)]


def test_the_wanted_one_alone_is_asked_and_has_nothing_below(asked, tmp_path):
    paths = {name: tmp_path / name for name in ("x64", "haswell", *UNSAFE)}
    for name in paths:
        assert pick(paths, ignore, wanted=name, crashed=()) == CpuVariant(name=name)
    assert asked == list(paths.values())


def test_a_configured_variant_that_the_processor_cannot_run_is_refused(tmp_path):
    path = tmp_path / "libggml-cpu-x64.so"
    path.write_text("text")
    with pytest.raises(LoadError, match="this processor cannot run it"):
        pick({"x64": path}, ignore, wanted="x64", crashed=())


def test_an_unknown_variant_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(LoadError, match="has haswell, x64$"):
        pick({"x64": tmp_path, "haswell": tmp_path}, ignore, wanted="z80", crashed=())
    with pytest.raises(LoadError, match="has no variants$"):
        pick({}, ignore, wanted="z80", crashed=())


@pytest.mark.slow
def test_a_file_that_the_library_does_not_load_is_refused(library):
    code = '#include <string.h>\nchar *ggml_backend_load(char *path) { return strstr(path, "good"); }'
    fake = ctypes.CDLL(str(library("fake", code)))
    load(fake, Path("good.so"))
    with pytest.raises(LoadError, match=r"cannot load bad\.so; run: make setup"):
        load(fake, Path("bad.so"))
