"""Sides that answer at once and without a model, and tell in which order they did."""

from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial

from bench.load.scene import Answer, Ask


class ScriptedClients:
    """Clients of a server whose every answer is one of four pieces."""

    def __init__(self, name: str, order: list[str]):
        self._name = name
        self._order = order

    def play(self, asks: Sequence[Ask]) -> list[Answer]:
        self._order.append(self._name)
        later = {"sent_at": 3, "times": [5, 6, 7, 8]}
        return [some_answer(**(later if ask.after_pieces else {})) for ask in asks]

    def ask(self, ask: Ask) -> Answer:
        [answer] = self.play([ask])
        return answer


def some_answer(**more) -> Answer:
    fields = {
        "sent_at": 0,
        "times": [2, 4, 5, 6],
        "lengths": [1, 5, 6, 7],
        "text": "t" * 24,
        "n_prompt": 40,
        "n_tokens": 9,
    }
    return Answer(**{**fields, **more})


@contextmanager
def scripted_sides(order: list[str], names: Sequence[str], *_, **__):
    yield {name: ScriptedClients(name, order) for name in names}


def noted(order: list[str], told, *_, **__):
    """Stand in for a tool of llama.cpp's."""
    order.append("raw")
    return told


def stand_in(monkeypatch, module, tool: str, told) -> list[str]:
    """Put two servers and a tool of ours into a measure; give the order that fills."""
    order: list[str] = []
    sides = partial(scripted_sides, order, ("inferd", "peer"))
    monkeypatch.setattr(module, "chat_sides", sides)
    if tool:
        monkeypatch.setattr(module, tool, partial(noted, order, told))
    return order
