import pytest

from bench.plots import draw
from tests.bench.reports import some_report

pytestmark = pytest.mark.slow


def test_each_axis_and_model_has_its_plot(tmp_path):
    names = draw(some_report(), tmp_path)
    assert names == ["growth-clients-smol.svg", "ratios-smol.svg"]
    for name in names:
        assert "<svg " in (tmp_path / name).read_text()


def test_the_same_figures_give_the_same_file(tmp_path):
    [name, _] = draw(some_report(), tmp_path)
    first = (tmp_path / name).read_bytes()
    draw(some_report(), tmp_path)
    assert (tmp_path / name).read_bytes() == first


def test_nothing_measured_is_nothing_drawn(tmp_path):
    broken = {"clients": {"smol": {"1": {"error": "it broke"}}}}
    assert draw(some_report(measures={}, growth=broken), tmp_path) == []
