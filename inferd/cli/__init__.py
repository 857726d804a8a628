"""One file per command; data to stdout, words to stderr."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from inferd import __version__
from inferd.cli.console import CommandError, fail

COMMANDS: Final = {
    "serve": "run the daemon in the foreground",
    "demo": "start a private daemon, ask it one question, stop it",
    "generate": "ask the daemon for one answer",
    "status": "show whether the daemon is ready; exit 0 only when it is",
    "doctor": "check this machine; exit 0 unless something is broken",
}
"""Each is a module with ``add_arguments(parser)`` and ``run(arguments)``; only the one
that is asked for is imported."""

EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run one command; give its exit code."""
    arguments = _parser(sys.argv).parse_args()
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except CommandError as error:
        return fail(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has had enough
        return 0


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inferd",
        description="A local inference daemon on Unix sockets.",
        epilog="exit codes: 0 done; 1 not ready, or a check failed; 2 an error; "
        "130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"inferd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in argv:
            module = import_module(f"inferd.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
