import pytest

from inferd.bridge.media.budget import DecodedBudget
from inferd.bridge.translation.failures import BridgeError


def test_half_is_for_one_principal_and_all_for_all():
    budget = DecodedBudget(100)
    budget.take("a", 50)
    with pytest.raises(BridgeError, match="too many"):
        budget.take("a", 1)
    budget.take("b", 30)
    with pytest.raises(BridgeError, match="too many"):
        budget.take("c", 21)
    budget.give_back("a", 50)
    budget.take("c", 21)
    assert budget.n_held == 51
