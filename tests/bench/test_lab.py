from pathlib import Path

import pytest

from bench.lab import Lab, ModelFile, OneSide, in_turns, reading
from bench.measures.single_stream import SINGLE_STREAM
from bench.measures.stall import STALL
from tests.cases import each_case


@pytest.fixture
def lab():
    return Lab(ModelFile("m", Path("/home/a/m.gguf")), frozenset(), n_threads=2)


def test_each_side_goes_first_in_turn():
    order: list[str] = []
    sides = {name: lambda name=name: order.append(name) for name in "abc"}
    for number in range(3):
        in_turns(number, sides)
    assert "".join(order) == "abcbcacab"


def test_a_reading_has_the_value_of_each_side_and_what_else_it_saw():
    sides = {"a": lambda: OneSide(1.0, {"cores": 2}), "b": lambda: OneSide(3.0)}
    taken = reading(1, sides)
    assert (taken.values, taken.details) == ({"a": 1, "b": 3}, {"a": {"cores": 2}})


def test_no_side_is_no_turn():
    assert in_turns(1, {}) == {}


def test_command_lines_are_kept_once_and_without_places(lab):
    for _ in range(2):
        lab.note(["/opt/bin/tool", "--model", "/home/a/m.gguf", "--fast"])
    lab.note_text('model = "/home/a/m.gguf"')
    assert [*lab.commands] == ["tool --model m.gguf --fast", 'model = "m.gguf"']


@each_case(("rounds", "of_long"), [(1, 1), (2, 1), (3, 1), (5, 3), (9, 5)])
def test_what_takes_long_has_about_half_the_rounds(rounds, of_long):
    assert SINGLE_STREAM.rounds_of(rounds) == rounds
    assert STALL.rounds_of(rounds) == of_long
