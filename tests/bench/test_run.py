import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.figures import Reading
from bench.lab import Lab, Measure, ModelFile
from bench.load.speech import ServerError
from bench.run import Results, Rounds

LAB = Lab(ModelFile("smol", Path("/m.gguf")), frozenset(), n_threads=2)
TWICE = Rounds(n_rounds=2, tries=1, growth_rounds=1)


class Kept(Results):
    """Results, and how they were each time that they were kept."""

    def __init__(self):
        super().__init__(keep=lambda: self.versions.append(json.dumps(self.measures)))
        self.versions: list[str] = []


@pytest.fixture
def results():
    return Kept()


def measure(key, take):
    @contextmanager
    def opened(_):
        yield take

    return Measure(key=key, title=key, unit="s", is_more_better=False, open=opened)


COUNT = measure("count", lambda number: Reading({"inferd": 1.0 + number}))


def broken(_):
    raise ServerError("it broke")


def test_each_round_is_taken_and_kept(results):
    results.add(LAB, [COUNT], TWICE, model="smol")
    found = results.measures["count"]["smol"]
    assert (found["inferd"], found["n_rounds"], found["unit"]) == (1.5, 2, "s")
    assert results.failed == []


def test_what_breaks_is_told_and_the_others_go_on(results):
    results.add(LAB, [measure("broken", broken), COUNT], TWICE, model="smol")
    assert results.failed == ["broken of smol: ServerError: it broke"]
    assert results.measures["count"]["smol"]["n_rounds"] == 2
    assert len(set(results.versions)) == 2


def test_only_what_is_asked_for_is_measured(results):
    only = Rounds(n_rounds=1, tries=1, growth_rounds=1, only=frozenset({"count"}))
    results.add(LAB, [measure("broken", broken), COUNT], only, model="smol")
    results.add_growth(LAB, {"clients": {1: COUNT}}, only)
    assert ([*results.measures], results.growth) == (["count"], {})


def test_growth_has_a_figure_for_each_place(results):
    axes = {"clients": {1: COUNT, 2: measure("broken", broken)}}
    results.add_growth(LAB, axes, TWICE)
    places = results.growth["clients"]["smol"]
    assert places["1"]["inferd"] == 1.0
    assert results.failed == ["clients 2 of smol: ServerError: it broke"]


def test_no_rounds_of_growth_are_none(results):
    none = Rounds(n_rounds=1, tries=1, growth_rounds=0)
    results.add_growth(LAB, {"clients": {1: COUNT}}, none)
    assert results.growth == {}
