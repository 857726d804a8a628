import pytest

from inferd.sandbox import box, landlock, seccomp


def test_what_the_kernel_takes_leaves_nothing_to_tell(monkeypatch):
    taken: list[object] = []
    monkeypatch.setattr(seccomp, "restrict", taken.append)
    assert box.call_only({"read": ()}) == ()
    assert taken == [{"read": ()}]
    assert box.keep_to(lambda: 7) == (7, ())


def test_files_that_the_kernel_does_not_take_away_are_told_with_its_words(monkeypatch):
    def refuse() -> int:
        raise PermissionError(1, "a filter around us")

    monkeypatch.setattr(landlock, "refusal", lambda: "Function not implemented")
    assert box.keep_to(refuse) == (0, ("Landlock: a filter around us",))
    version, [missing] = box.keep_to(lambda: 0)
    assert version == 0
    assert missing.startswith("Landlock: ")
    assert missing.endswith("(Function not implemented)")


@pytest.mark.parametrize("reason", ["no such processor", "thread 7"])
def test_calls_that_the_kernel_does_not_take_away_are_told(reason, monkeypatch):
    def refuse(_rules: object) -> None:
        raise seccomp.NoFilterError(reason)

    monkeypatch.setattr(seccomp, "restrict", refuse)
    assert box.call_only({}) == (f"seccomp: {reason}",)
