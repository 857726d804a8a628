"""``inferd serve`` and ``inferd doctor`` with more kinds: ``python -m tests.fakes.kinds.command``.

The composition root gets a registry that has two records more than the daemon's own.
"""

import argparse
import sys

from inferd.cli.commands import doctor, serve
from inferd.cli.console import CommandError, fail
from tests.fakes.kinds.records import EXTENDED

COMMANDS = {"serve": serve, "doctor": doctor}


def main() -> int:
    """Run one of the commands; return its exit code."""
    name, *arguments = sys.argv[1:]
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    try:
        code: int = COMMANDS[name].run(parser.parse_args(arguments), EXTENDED)
    except CommandError as error:
        return fail(error)
    return code


if __name__ == "__main__":
    sys.exit(main())
