import os
from pathlib import Path

import pytest

from inferd.worker.proc_file import ProcFile


def test_each_reading_gives_what_the_file_holds_by_then(tmp_path):
    path = tmp_path / "stat"
    path.write_text("x" * 200_000)
    kept = ProcFile(path)
    assert kept.read() == "x" * 200_000
    path.write_text("ab")
    assert [kept.read(), kept.read()] == ["ab", "ab"]


def test_it_is_opened_once(tmp_path):
    path = tmp_path / "stat"
    path.write_text("a")
    kept = ProcFile(path)
    kept.open()
    path.unlink()
    assert kept.read() == "a"


def test_a_fork_reads_what_is_its_own():
    kept = ProcFile(Path("/proc/self/stat"))
    assert kept.read().startswith(f"{os.getpid()} ")
    if not (fork := os.fork()):
        is_own = kept.read().startswith(f"{os.getpid()} ")
        os._exit(0 if is_own else 1)
    assert os.waitpid(fork, 0)[1] == 0


def test_a_file_that_is_not_there_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        ProcFile(tmp_path / "missing").read()


def test_the_descriptor_is_closed_with_the_object(tmp_path):
    def n_open() -> int:
        open_files = Path("/proc/self/fd").iterdir()
        return sum(each.exists() and each.samefile(path) for each in open_files)

    path = tmp_path / "stat"
    path.write_text("a")
    kept = ProcFile(path)
    kept.read()
    assert n_open() == 1
    del kept
    assert n_open() == 0
