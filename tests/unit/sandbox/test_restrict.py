import pytest

from inferd.sandbox import landlock, restrict, seccomp


def test_if_all_is_restricted_nothing_is_reported(monkeypatch):
    taken: list[object] = []
    monkeypatch.setattr(seccomp, "restrict", taken.append)
    assert restrict.restrict_syscalls({"read": ()}) == ()
    assert taken == [{"read": ()}]
    assert restrict.restrict_files(lambda: 7) == (7, ())


def test_files_that_cannot_be_restricted_are_reported_with_the_kernels_error(
    monkeypatch,
):
    def refuse() -> int:
        raise PermissionError(1, "a filter around us")

    monkeypatch.setattr(landlock, "kernel_error", lambda: "Function not implemented")
    assert restrict.restrict_files(refuse) == (0, ("Landlock: a filter around us",))
    version, [missing] = restrict.restrict_files(lambda: 0)
    assert version == 0
    assert missing.startswith("Landlock: ")
    assert missing.endswith("(Function not implemented)")


@pytest.mark.parametrize("reason", ["no such processor", "thread 7"])
def test_calls_that_cannot_be_restricted_are_reported(reason, monkeypatch):
    def refuse(_rules: object) -> None:
        raise seccomp.NoFilterError(reason)

    monkeypatch.setattr(seccomp, "restrict", refuse)
    assert restrict.restrict_syscalls({}) == (f"seccomp: {reason}",)
