import argparse
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferd.cli.commands import demo
from inferd.cli.commands.demo import QUESTION, add_arguments, private_daemon
from inferd.cli.console import CommandError
from tests.fakes.listener import answers, done, failure, listening, token


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.fixture
def scripted(monkeypatch, short_dir):
    """Put a scripted listener in place of the private daemon."""

    def use(*frames) -> None:
        @contextmanager
        def start(directory: Path):
            with listening(short_dir / "infer.sock", answers(list(frames))):
                directory.symlink_to(short_dir)
                yield

        monkeypatch.setattr(demo, "private_daemon", start)

    return use


def test_it_has_a_question_of_its_own():
    assert parse().prompt == QUESTION
    assert parse("Why?").prompt == "Why?"


def test_the_answer_is_on_stdout_and_messages_on_stderr(inferd, scripted):
    scripted(token("Par", "demo"), token("is", "demo"), done("Paris", "demo"))
    code, stdout, stderr = inferd("demo", "Where?")
    assert (code, stdout) == (0, "Paris\n")
    asking, speed, stopped = stderr.splitlines()
    assert asking.endswith("/infer.sock: Where?")
    assert re.search(r"first token \d+\.\d{3} s \(3 prompt tokens\), then ", speed)
    assert re.search(r"then [\d.]+ tokens/s \(2 tokens, stopped by end\)$", speed)
    assert stopped == "demo: the daemon has stopped"


def test_one_token_has_no_speed(inferd, scripted):
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    scripted(token("a", "demo"), done("a", "demo", usage=usage))
    assert "then one token (1 tokens" in inferd("demo").stderr


def test_a_refusal_is_one_line(inferd, scripted):
    scripted(failure("backend_unavailable", "gone", "demo"))
    code, stdout, stderr = inferd("demo")
    assert (code, stdout) == (2, "")
    assert stderr.splitlines()[-1] == "error: backend_unavailable: gone"


@pytest.mark.slow
def test_a_private_daemon_without_its_model_hints_at_a_command(inferd, short_dir):
    with pytest.raises(CommandError, match="inferd model pull embedded:chat"):
        with private_daemon(short_dir / "run"):
            pytest.fail("it started")
