from importlib import import_module

import pytest

from tests.bench.reports import some_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def draw():
    """What draws: its library takes a second to import, wherever tests are collected."""
    return import_module("bench.plots").draw


def test_each_axis_and_model_has_its_plot(draw, tmp_path):
    names = draw(some_report(), tmp_path)
    assert names == ["growth-clients-smol.svg", "ratios-smol.svg"]
    for name in names:
        assert "<svg " in (tmp_path / name).read_text()


def test_the_same_figures_give_the_same_file(draw, tmp_path):
    [name, _] = draw(some_report(), tmp_path)
    first = (tmp_path / name).read_bytes()
    draw(some_report(), tmp_path)
    assert (tmp_path / name).read_bytes() == first


def test_nothing_measured_is_nothing_drawn(draw, tmp_path):
    broken = {"clients": {"smol": {"1": {"error": "it broke"}}}}
    assert draw(some_report(measures={}, growth=broken), tmp_path) == []
