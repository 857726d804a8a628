from pathlib import Path

from bench.lab import SIDES, Lab, ModelFile
from bench.measures import json_schema
from bench.run import taken_figure
from tests.bench.players import stand_in


def test_the_rate_with_prompts_and_compiling_is_summed_up_beside(monkeypatch):
    stand_in(monkeypatch, json_schema, "", None)
    lab = Lab(ModelFile("m", Path("/m.gguf")), frozenset(SIDES), n_threads=2)
    found = taken_figure(json_schema.JSON_SCHEMA, lab, 2, 1)
    [whole] = found["also"].values()
    assert (found["inferd"], whole["inferd"], whole["peer"]) == (4.5, 4, 4)
    assert (whole["ratio_peer"], whole["ratio_free"], whole["raw"]) == (1, 1, None)
