"""One file per command; data to stdout, words to stderr."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from inferd import __version__
from inferd.cli.console import CommandError, fail
from inferd.terminal import Parser, StdoutError, leave_stderr, telling_bugs

COMMANDS: Final = {
    "serve": "run the daemon in the foreground",
    "demo": "start a private daemon, ask it one question, stop it",
    "generate": "ask the daemon for one answer",
    "embed": "turn texts into embeddings, a JSON line each",
    "rerank": "order documents by how well they answer a query, the best first",
    "transcribe": "write down what is said in files, or while it is said",
    "cancel": "end requests by their id",
    "drain": "have the daemon finish what it has, and end",
    "reload": "have the daemon read its configuration again",
    "status": "show whether the daemon is ready; exit 0 only when it is",
    "doctor": "check this machine; exit 0 unless something is broken",
}
"""Each is a module with ``add_arguments(parser)`` and ``run(arguments)``; only the one
that is asked for is imported."""

EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run one command; give its exit code."""
    with telling_bugs():
        arguments = _parse(sys.argv[1:])
        run: Callable[[argparse.Namespace], int] = arguments.run
        return _code_of(run, arguments)


def _code_of(
    run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace
) -> int:
    try:
        return run(arguments)
    except CommandError as error:
        failure = error
    except StdoutError as error:
        failure = CommandError(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        leave_stderr()  # whoever read our output has had enough
        return 0
    except OSError as error:
        failure = CommandError(error.strerror or str(error))
    return fail(failure)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="inferd",
        description="A local inference daemon on Unix sockets.",
        epilog="exit codes: 0 done; 1 not ready, or a check failed; 2 an error, or an "
        "answer that was cancelled; 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"inferd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parsers = {
        name: commands.add_parser(name, help=text, description=text)
        for name, text in COMMANDS.items()
    }
    if not words or words[0] not in COMMANDS:
        return parser.parse_args(words)  # help, the version, or an error
    module = import_module(f"inferd.cli.{words[0]}")
    command = parsers[words[0]]
    module.add_arguments(command)
    command.set_defaults(run=module.run)
    if "--" in words:  # behind which the other way of parsing finds nothing
        return command.parse_args(words[1:])
    return command.parse_intermixed_args(words[1:])  # texts may stand among options
