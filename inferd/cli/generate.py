"""inferd generate: one answer, streamed to stdout."""

import argparse
import sys
from pathlib import Path

from inferd.cli.configuration import load_config, socket_directory
from inferd.cli.console import EXIT_OK, CommandError, data, printable
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import Client
from inferd.wire.codec import encode
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, TokenFrame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("prompt", help="what to say to the model; - reads stdin")
    parser.add_argument("--system", metavar="TEXT", help="a system message before it")
    parser.add_argument("--temperature", type=float, metavar="T")
    parser.add_argument("--top-p", type=float, metavar="P")
    parser.add_argument("--top-k", type=int, metavar="K")
    parser.add_argument("--max-tokens", type=int, metavar="N")
    parser.add_argument("--json", action="store_true", help="print frames as they come")
    add_socket_argument(parser)


def add_socket_argument(parser: argparse.ArgumentParser) -> None:
    """Declare how a command finds the daemon."""
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the daemon's sockets are"
    )


def run(arguments: argparse.Namespace) -> int:
    """Stream the answer."""
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    request = make_request(prompt, arguments)
    try:
        with Client(arguments.directory or configured_directory()) as client:
            for frame in client.generate(request):
                _print(frame, as_json=arguments.json)
    except NoDaemonError as error:
        raise CommandError(str(error), hint="inferd serve") from error
    except ClientError as error:
        raise CommandError(str(error)) from error
    return EXIT_OK


def make_request(prompt: str, arguments: argparse.Namespace) -> GenerateRequest:
    """Put the request together."""
    system = [ChatMessage("system", arguments.system)] if arguments.system else []
    return GenerateRequest(
        id="cli",
        messages=[*system, ChatMessage("user", prompt)],
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        top_k=arguments.top_k,
        max_tokens=arguments.max_tokens,
    )


def configured_directory() -> Path | None:
    """Find the sockets' directory in the configuration, if there is one."""
    config = load_config(None)
    return socket_directory(config) if config.listen.directory else None


def _print(frame: TokenFrame | DoneFrame, *, as_json: bool) -> None:
    if as_json:
        data(encode(frame).decode(), end="")
    elif isinstance(frame, TokenFrame):
        data(printable(frame.content), end="")
    else:
        data("")
