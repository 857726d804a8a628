"""The command line: one module per command; data to stdout, messages to stderr."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Final

from inferd import __version__
from inferd.cli.console import CommandError, fail
from inferd.service.importing import without_collections
from inferd.terminal import Parser, StdoutError, close_stderr, safe_tracebacks

COMMANDS: Final = {
    "serve": "run the daemon in the foreground",
    "bridge": "serve HTTP as OpenAI, Anthropic and Ollama have it; make tokens for it",
    "chats": "copy, restore, upgrade and roll back the database of chats",
    "demo": "start a private daemon, ask it one question, stop it",
    "chat": "chat in the terminal, with what was said before",
    "generate": "ask the daemon for one answer",
    "embed": "turn texts into embeddings, a JSON line each",
    "rerank": "order documents by how well they answer a query, the best first",
    "transcribe": "transcribe speech, from files or live",
    "cancel": "end requests by their id",
    "drain": "finish the running and queued requests, then stop the daemon",
    "load": "load a backend's model now, before a request needs it",
    "unload": "unload a backend's model to free its memory",
    "reload": "make the daemon read its configuration again",
    "explain": "tell the life of one request: what it waited for, and what took how long",
    "top": "show the queue, users, models and memory of the daemon, again and again",
    "status": "show whether the daemon is ready; exit 0 only when it is",
    "model": "bring models, list them and remove them",
    "config": "check the configuration, show the settings in force, write a first one",
    "fleet": "look after several bridges behind one address",
    "doctor": "check this machine and the configuration; exit 0 unless a check failed",
}
"""Name to help text. A command is a module with ``add_arguments(parser)`` and
``run(arguments)``; only the requested one is imported."""

MODEL_COMMANDS: Final = {
    "list": "list the models of the store, and those that a daemon serves",
    "show": "show what a model is, and what it can do on this machine",
    "pull": "bring a model from Hugging Face's hub or another server",
    "import": "bring a file into the store, or a model that another program has",
    "verify": "compare the files of models with their SHA-256; exit 0 only if they agree",
    "outdated": "tell which models have newer files at their source",
    "remove": "remove a model, and its files that no other model uses",
    "prune": "remove files that no model uses",
}

CONFIG_COMMANDS: Final = {
    "check": "list all that is wrong with the configuration; exit 0 only if nothing is",
    "show": "print all settings in force, and where each comes from",
    "init": "write a first configuration, with comments, for this machine and its models",
}

FLEET_COMMANDS: Final = {
    "status": "show how each member is; exit 0 only if all that take requests are ready",
    "check": "list what is wrong with the fleet; exit 0 only if nothing is",
    "write": "write what smg and haproxy read",
    "drain": "give a member no new requests, and wait until it has none",
    "resume": "give a member that was drained requests again",
    "serve": "write the list of members and run smg, which serves them at one address",
}

GROUPS: Final = {
    "fleet": ("inferd.cli.fleet", FLEET_COMMANDS),
    "model": ("inferd.cli.models", MODEL_COMMANDS),
    "config": ("inferd.cli.config", CONFIG_COMMANDS),
}
"""Commands that have commands: the package of these, and what ``COMMANDS`` is to others."""

ELSEWHERE: Final = {
    "chat": "inferd.cli.chat",
    "explain": "inferd.cli.watch",
    "top": "inferd.cli.watch",
}
"""Commands of ``COMMANDS`` that are in another package than the others."""

EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run one command and return its exit code."""
    with safe_tracebacks():
        with without_collections():
            arguments = _parse(sys.argv[1:]) if sys.argv[1:] else _alone()
        run: Callable[[argparse.Namespace], int] = arguments.run
        return _exit_code(run, arguments)


def _alone() -> argparse.Namespace:
    """Return what is done without a command: on a terminal no error, but help."""
    from inferd.cli import alone  # noqa: PLC0415  # imports what other commands do not need

    parser = _top_parser()
    _name_commands(parser, COMMANDS)
    if not alone.is_on_terminal():
        return _parse([])

    def run(_: argparse.Namespace) -> int:
        chat = _parse(["chat"])
        return alone.run(parser.print_help, lambda: int(chat.run(chat)))

    return argparse.Namespace(run=run)


def _exit_code(
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
        close_stderr()  # the reader of stdout closed it: not an error
        return 0
    except OSError as error:
        failure = CommandError(error.strerror or str(error))
    return fail(failure)


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, for manual pages and completions.

    It imports the modules of all commands.
    """
    parser = _top_parser()
    _add_commands(parser, "inferd.cli.commands", COMMANDS)
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, package: str, commands: Mapping[str, str]
) -> None:
    for name, command in _name_commands(parser, commands).items():
        if name in GROUPS:
            _add_commands(command, *GROUPS[name])
        else:
            _add_arguments(command, package, name)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    return _parse_command(_top_parser(), "inferd.cli.commands", COMMANDS, argv)


def _top_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="inferd",
        description="A local inference daemon on Unix sockets.",
        epilog="exit codes: 0 done; 1 not ready, or a check failed; 2 an error, or an "
        "answer that was cancelled; 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"inferd {__version__}")
    return parser


def _parse_command(
    parser: argparse.ArgumentParser,
    package: str,
    commands: Mapping[str, str],
    argv: Sequence[str],
) -> argparse.Namespace:
    """Parse the arguments of one of a package's commands; import only that one."""
    parsers = _name_commands(parser, commands)
    if not argv or argv[0] not in commands:
        return parser.parse_args(argv)  # help, the version, or an error
    name, command = argv[0], parsers[argv[0]]
    if name in GROUPS:
        return _parse_command(command, *GROUPS[name], argv[1:])
    module = _add_arguments(command, package, name)
    command.set_defaults(run=module.run)
    if "--" in argv or getattr(module, "HAS_COMMANDS", False):
        # parse_intermixed_args loses the arguments after -- and takes no commands
        return command.parse_args(argv[1:])
    return command.parse_intermixed_args(argv[1:])  # positionals between options


def _name_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, str]
) -> dict[str, argparse.ArgumentParser]:
    """Add the commands, still without arguments, by their names."""
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    return {
        name: subparsers.add_parser(name, help=text, description=text)
        for name, text in commands.items()
    }


def _add_arguments(
    command: argparse.ArgumentParser, package: str, name: str
) -> ModuleType:
    """Import the module of a command, and add its arguments."""
    if add_shared := getattr(import_module(package), "add_shared_arguments", None):
        add_shared(command)
    package = ELSEWHERE.get(name, package)
    module = import_module(f"{package}.{name}{'_' if iskeyword(name) else ''}")
    module.add_arguments(command)
    return module
