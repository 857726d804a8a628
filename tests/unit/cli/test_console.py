import sys

import pytest

from inferd.cli.console import EXIT_ERROR, CommandError, fail, stdin


def test_a_stdin_that_was_closed_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandError, match="stdin: closed"):
        stdin()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CommandError("no daemon"), "error: no daemon\n"),
        (
            CommandError("no daemon", hint="inferd serve"),
            "error: no daemon\n\nhint: inferd serve\n",
        ),
        (CommandError("a\nhint: \x1b[2J"), "error: a\\nhint: \\x1b[2J\n"),
    ],
)
def test_an_error_is_one_line_and_perhaps_a_hint(capsys, error, words):
    assert fail(error) == EXIT_ERROR == 2
    assert capsys.readouterr() == ("", words)
