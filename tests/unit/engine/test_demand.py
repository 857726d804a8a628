import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.demand import DemandUnknownError, predict_demand
from tests.fakes.starting import program_of
from tests.model.tiny import write_tiny_model


@pytest.mark.slow
@pytest.mark.model
def test_a_worker_tells_its_demand_without_loading(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf")
    settings = LlamaCppSettings(name="m", model=str(path))
    demand = predict_demand(program_of(settings), settings, 2, LimitSettings())
    assert demand.n_ctx == 512
    assert demand.weights >= path.stat().st_size // 2


@pytest.mark.slow
def test_a_worker_that_demands_nothing_or_ends_is_told():
    settings = MockSettings(name="m")
    with pytest.raises(DemandUnknownError, match="without reporting its memory"):
        predict_demand(program_of(settings), settings, 1, LimitSettings())
    dying = MockSettings(name="m", die_at_load=True)
    with pytest.raises(DemandUnknownError, match="exited|killed|SIGKILL"):
        predict_demand(program_of(dying), dying, 1, LimitSettings())
