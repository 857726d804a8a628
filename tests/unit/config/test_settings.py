import msgspec

from inferd.config.settings import Config


def test_the_defaults_are_within_their_own_bounds():
    assert msgspec.convert(msgspec.to_builtins(Config()), Config) == Config()
