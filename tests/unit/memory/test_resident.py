import os
from pathlib import Path

from inferd.memory.resident import resident_bytes


def test_resident_pages_are_counted_in_bytes(tmp_path: Path):
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "statm").write_text("900 30 20 1 0 500 0\n")
    assert resident_bytes(17, tmp_path) == 30 * os.sysconf("SC_PAGE_SIZE")


def test_a_process_that_is_gone_has_no_memory(tmp_path: Path):
    assert resident_bytes(17, tmp_path) is None
    assert (resident_bytes(os.getpid()) or 0) > 1_000_000
