"""inferd demo: start a private daemon, send it one request, stop it."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.own_daemon import own_daemon
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import FrameClient
from inferd.terminal import print_stderr, print_text
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, ProgressFrame, TokenFrame

QUESTION: Final = "What is the capital of France? Answer in English."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "prompt", nargs="?", default=QUESTION, help=f'default "{QUESTION}"'
    )


def run(arguments: argparse.Namespace) -> int:
    """Start a daemon, send the prompt, print the answer, stop the daemon."""
    with tempfile.TemporaryDirectory(prefix="inferd-demo-") as scratch:
        directory = Path(scratch) / "run"
        with private_daemon(directory):
            print_stderr(f"demo: asking on {directory}/infer.sock: {arguments.prompt}")
            try:
                _ask(directory, arguments.prompt)
            except (NoDaemonError, ClientError) as error:
                raise CommandError(str(error)) from error
    print_stderr("demo: the daemon has stopped")
    return EXIT_OK


@contextmanager
def private_daemon(directory: Path) -> Iterator[None]:
    """Run a daemon with the embedded chat model inside the ``with`` block."""
    config = directory.parent / "config.toml"
    config.write_text(f'[listen]\ndirectory = "{directory}"\n[log]\nfile = false\n')
    log = directory.parent / "daemon.log"
    with own_daemon("demo", ["--config", str(config)], directory, log):
        yield


def _ask(directory: Path, prompt: str) -> None:
    request = GenerateRequest(
        id="demo", messages=[ChatMessage("user", prompt)], temperature=0, max_tokens=200
    )
    sent_at = time.monotonic()
    first_at: float | None = None
    with FrameClient(directory) as client:
        for frame in client.generate(request):
            match frame:
                case TokenFrame():
                    first_at = first_at or time.monotonic()
                    print_text(frame.content)
                case ProgressFrame():
                    pass
                case DoneFrame():
                    print_text("\n")
                    _print_speed(frame, sent_at, first_at or time.monotonic())


def _print_speed(done: DoneFrame, sent_at: float, first_at: float) -> None:
    n_tokens = done.usage.completion_tokens
    decode_s = time.monotonic() - first_at
    rate = f"{(n_tokens - 1) / decode_s:.1f} tokens/s" if n_tokens > 1 else "one token"
    print_stderr(
        f"demo: time to first token {first_at - sent_at:.3f} s "
        f"({done.usage.prompt_tokens} prompt tokens), then {rate} "
        f"({n_tokens} tokens, stopped by {done.stop_reason})"
    )
