from collections.abc import Sequence

from inferd.sandbox import landlock
from inferd.worker.sandbox import landlock_paths


def test_missing_paths_are_skipped(monkeypatch):
    taken: list[tuple[int, int]] = []

    def take(allowed: list[tuple[int, int]], *, ports: Sequence[int]) -> int:
        assert ports == ()
        taken.extend(allowed)
        return 7

    monkeypatch.setenv("LD_LIBRARY_PATH", "/no/such/place::")
    monkeypatch.setattr(landlock, "restrict", take)
    assert landlock_paths.restrict_to_paths([99]) == 7
    assert taken[0] == (99, landlock.READ_FILE)
    assert all(fd >= 0 for fd, _ in taken)
