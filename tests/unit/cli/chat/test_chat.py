import argparse
import os
import subprocess
import sys

import pytest

from inferd.cli.chat import chat
from inferd.cli.console import CommandError


def test_missing_packages_are_told_with_the_extra_that_has_them(monkeypatch):
    chat.check_extra()
    monkeypatch.setattr(
        chat, "find_spec", lambda name: None if name == "rich" else name
    )
    with pytest.raises(CommandError, match=r"^inferd chat needs rich$") as raised:
        chat.check_extra()
    assert "'inferd[chat]'" in raised.value.hint


def test_a_pipe_is_refused_with_what_answers_one(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(read) as stdin:
        os.close(write)
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(CommandError, match="needs a terminal") as raised:
            chat.check_terminal()
    assert "inferd generate" in raised.value.hint


def test_other_commands_import_nothing_of_the_extra():
    code = (
        "import sys, inferd.cli, inferd.cli.chat.chat\n"
        f"sys.exit(any(each in sys.modules for each in {[*chat.EXTRA]}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_token_of_a_bridge_is_read_from_a_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("secret\n")
    assert chat.read_token(path) == "secret"
    assert chat.read_token(None) is None
    with pytest.raises(CommandError, match="no token that can be read"):
        chat.read_token(tmp_path / "absent")


def test_options_that_exclude_each_other_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(chat, "check_terminal", lambda: None)
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    token = tmp_path / "token"
    token.write_text("secret")
    for words in (
        ["--token-file", str(token)],
        ["--url", "http://127.0.0.1:1", "--directory", "/x"],
    ):
        with pytest.raises(CommandError, match=r"--url"):
            chat.run(parser.parse_args(words))


def test_the_size_of_the_terminal_is_known(monkeypatch):
    monkeypatch.setenv("COLUMNS", "41")
    monkeypatch.setenv("LINES", "12")
    assert chat.terminal_size() == (41, 12)
