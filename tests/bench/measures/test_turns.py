from pathlib import Path

import pytest

from bench.lab import SIDES, Lab, ModelFile
from bench.measures import cold_prefill, concurrent, single_stream
from tests.bench.players import stand_in

TOLD = {"pl": 8, "tg": 50, "t_tg": 8.0, "t": 10.0}
MEASURES = [
    (single_stream, single_stream.SINGLE_STREAM, "bench_rate", 50.0),
    (cold_prefill, cold_prefill.COLD_PREFILL, "bench_rate", 50.0),
    (concurrent, concurrent.CONCURRENT, "batched", TOLD),
]


@pytest.mark.parametrize(("module", "measure", "tool", "told"), MEASURES)
def test_llama_cpp_alone_takes_turns_with_the_servers(
    module, measure, tool, told, monkeypatch
):
    order = stand_in(monkeypatch, module, tool, told)
    lab = Lab(ModelFile("m", Path("/m.gguf")), frozenset(SIDES), n_threads=2)
    with measure.open(lab) as take:
        for number, first in enumerate(("inferd", "peer", "raw")):
            order.clear()
            taken = take(number)
            assert order[0] == first
            assert sorted(order) == ["inferd", "peer", "raw"]
            assert taken.values["raw"] == 50
            assert set(taken.values) == {"inferd", "peer", "raw"}
