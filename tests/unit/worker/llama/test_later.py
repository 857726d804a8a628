import threading

import pytest

from inferd.worker.llama.later import Later


def test_it_is_made_once_and_in_a_thread():
    made: list[str] = []

    def make() -> str:
        made.append(threading.current_thread().name)
        return "it"

    later = Later(make)
    assert made == []
    later.begin()
    assert (later.get(), later.get(), made) == ("it", "it", ["later"])


def test_who_needs_it_waits_for_it():
    may_go_on = threading.Event()
    later = Later(may_go_on.wait)
    assert not later.is_being_made
    later.begin()
    assert later.is_being_made
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(later.get()))
    waiting.start()
    assert got == []
    may_go_on.set()
    waiting.join()
    assert (got, later.is_being_made) == ([True], False)


def test_who_needs_what_could_not_be_made_is_told():
    later = Later(lambda: 1 // 0)
    later.begin()
    with pytest.raises(RuntimeError, match="could not be made") as caught:
        later.get()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
