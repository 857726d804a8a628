import struct

import pytest

from fuzz import headers
from fuzz.headers import judge, seeds, try_files
from fuzz.judge import BrokenPromiseError
from inferd.models.file_error import ModelFileError

SEED = 1


@pytest.mark.long
@pytest.mark.slow
def test_hostile_files_are_refused_or_read():
    tally = try_files(SEED, range(3000))
    assert tally.findings == {}
    assert tally.n_files == sum(tally.outcomes.values()) == 3000
    assert set(tally.outcomes) == {"refused", "read as llamacpp", "read as whispercpp"}


def test_sound_files_are_read():
    assert {judge(content) for content in seeds()} == {
        "read as llamacpp",
        "read as whispercpp",
    }


def test_a_file_follows_from_the_seed_and_its_number():
    files = seeds()
    one, same, other = (
        headers.mutant(headers._generator(seed, 7), files) for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.slow
def test_another_exception_is_a_finding(monkeypatch):
    def fail(*_: object) -> None:
        raise struct.error

    monkeypatch.setattr(headers, "gguf_facts", fail)
    tally = try_files(SEED, range(200))
    assert list(tally.findings) == ["error in fail"]


def test_many_reads_are_a_finding(monkeypatch):
    def read_header(file, _: int) -> None:
        for _ in range(headers.MAX_READS + 1):
            file.read(1)
        raise ModelFileError

    monkeypatch.setattr(headers, "read_header", read_header)
    with pytest.raises(BrokenPromiseError, match="7 reads of 8 bytes"):
        judge(b"lmgg1234")
