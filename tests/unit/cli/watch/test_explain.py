import argparse

import pytest

from inferd.cli.console import CommandError
from inferd.cli.watch import explain


def test_digits_that_are_no_id_may_be_a_number(monkeypatch):
    def refuse(*_: object) -> None:
        raise CommandError("no request with the id is known")

    monkeypatch.setattr(explain, "send_command", refuse)
    parser = argparse.ArgumentParser()
    explain.add_arguments(parser)
    for words, hint in ((["17"], "inferd explain --number 17"), (["r-17"], "")):
        with pytest.raises(CommandError, match="is known") as raised:
            explain.run(parser.parse_args(words))
        assert raised.value.hint == hint
