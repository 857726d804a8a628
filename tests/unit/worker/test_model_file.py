import os

import pytest

from inferd.worker.backend import LoadError
from inferd.worker.model_file import OpenedFile, check_sha256

HELLO_SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


class Anything(OpenedFile):
    def __init__(self, path):
        super().__init__(path)
        self._open(path)


def test_a_file_is_closed_with_what_opened_it(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"hello")
    file = Anything(path)
    [fd] = file.fds
    check_sha256(file, HELLO_SHA256, lambda: None)
    del file
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_what_is_written_after_it_was_opened_is_noticed(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"hello")
    file = Anything(path)
    file.refuse_if_changed()
    path.write_bytes(b"hallo")
    with pytest.raises(LoadError, match="it changed while it was loaded"):
        check_sha256(file, HELLO_SHA256, lambda: None)
