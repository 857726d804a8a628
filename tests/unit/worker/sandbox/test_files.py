from inferd.sandbox import landlock
from inferd.worker.sandbox import files


def test_places_that_are_not_there_are_left_out(monkeypatch):
    taken: list[tuple[int, int]] = []

    def take(allowed: list[tuple[int, int]]) -> int:
        taken.extend(allowed)
        return 7

    monkeypatch.setenv("LD_LIBRARY_PATH", "/no/such/place::")
    monkeypatch.setattr(landlock, "restrict", take)
    assert files.restrict([99]) == 7
    assert taken[0] == (99, landlock.READ_FILE)
    assert all(fd >= 0 for fd, _ in taken)
