import threading

import pytest

from inferd.worker.llama.grammar.background import BackgroundValue


def test_the_value_is_computed_once_in_a_thread():
    made: list[str] = []

    def make() -> str:
        made.append(threading.current_thread().name)
        return "it"

    later = BackgroundValue(make)
    assert made == []
    later.start()
    assert (later.get(), later.get(), made) == ("it", "it", ["background-value"])


def test_get_waits_for_the_value():
    may_go_on = threading.Event()
    later = BackgroundValue(may_go_on.wait)
    assert not later.is_running
    later.start()
    assert later.is_running
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(later.get()))
    waiting.start()
    assert got == []
    may_go_on.set()
    waiting.join()
    assert (got, later.is_running) == ([True], False)


def test_a_failed_computation_is_raised_to_callers():
    later = BackgroundValue(lambda: 1 // 0)
    later.start()
    with pytest.raises(RuntimeError, match="computation failed") as caught:
        later.get()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
