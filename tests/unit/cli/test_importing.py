import gc

import pytest

from inferd.cli.importing import without_collections


@pytest.mark.parametrize("was_enabled", [True, False])
def test_nothing_is_collected_inside_and_as_before_afterwards(was_enabled):
    is_enabled = gc.isenabled()
    try:
        (gc.enable if was_enabled else gc.disable)()
        with pytest.raises(ImportError), without_collections():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == was_enabled
    finally:
        (gc.enable if is_enabled else gc.disable)()
