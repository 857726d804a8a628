import msgspec

from inferd.config.kinds.registry import KINDS
from inferd.config.parse import config_type


def test_the_defaults_are_within_their_own_bounds():
    tables = config_type(KINDS)
    assert msgspec.convert(msgspec.to_builtins(tables()), tables) == tables()
