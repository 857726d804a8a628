import ctypes
from typing import Any

import pytest
from hypothesis import given, strategies as st

from inferd.worker.backend import LoadError
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.memory import std_map as module
from inferd.worker.llama.memory.std_map import is_cpu, read_std_map

CARD = 1


class Library:
    """A library with one function, which gives a map of these nodes."""

    def __init__(self, held: list[tuple[int, int]], n_told: int) -> None:
        self._nodes: list[Any] = []
        head = (0, 0, self._tree(held), 0, 0, n_told)
        self._map = module._Map(module._Words(*head))

    def __getitem__(self, symbol: str) -> Any:
        assert symbol == "ask"

        def ask(*arguments: object) -> object:
            assert ask.argtypes == [type(each) for each in arguments]  # type: ignore[attr-defined]
            return self._map

        return ask

    def _tree(self, held: list[tuple[int, int]]) -> int:
        if not held:
            return 0
        middle = len(held) // 3  # not balanced: a deep way to the right
        left, right = self._tree(held[:middle]), self._tree(held[middle + 1 :])
        self._nodes.append((ctypes.c_size_t * 6)(0, 0, left, right, *held[middle]))
        return ctypes.addressof(self._nodes[-1])


Number = st.integers(0, 2**63)


@given(st.lists(st.tuples(Number, Number), max_size=40))
def test_a_map_is_read_in_its_order(held):
    library: Any = Library(held, len(held))
    assert read_std_map(library, "ask", ctypes.c_void_p(1), n_words=2) == held


@given(st.lists(st.tuples(Number, Number), max_size=9), st.integers(1, 2**40))
def test_a_map_that_has_fewer_nodes_than_it_says_is_refused(held, n_missing):
    library: Any = Library(held, len(held) + n_missing)
    with pytest.raises(LoadError, match=r"not that of the pinned release.*make setup"):
        read_std_map(library, "ask", ctypes.c_void_p(1), n_words=2)


def test_a_library_without_the_function_is_refused():
    with pytest.raises(LoadError, match="pinned release"):
        read_std_map(ctypes.CDLL(None), "not_there", n_words=2)


@pytest.mark.parametrize("kind", [0, CARD])
def test_the_processor_is_told_from_a_card(monkeypatch, kind):
    def ask(device: int) -> int:
        return device

    monkeypatch.setattr(llama._lib, "ggml_backend_dev_type", ask, raising=False)
    assert is_cpu(kind) == (kind != CARD)
