"""What the parser of the commands knows of each command and of each of its arguments.

argparse has no public way to ask: the names with an underscore are all in this module.
"""

# ruff: noqa: SLF001  # see above

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple

MANY: Final = {
    argparse.OPTIONAL: "[{}]",
    argparse.ZERO_OR_MORE: "[{} ...]",
    argparse.ONE_OR_MORE: "{} ...",
}
"""How often a value may be given, by argparse's sign of it."""


class Command(NamedTuple):
    """A command with its arguments, and those below it."""

    words: tuple[str, ...]
    """What is typed, from the program's name on."""
    summary: str
    parser: argparse.ArgumentParser

    @property
    def page(self) -> str:
        """The name of its manual page."""
        return "-".join(self.words)

    @property
    def epilog(self) -> str:
        """What its help ends with."""
        return self.parser.epilog or ""

    @property
    def keeps_lines(self) -> bool:
        """Whether the lines of its epilog are tables that must stay as they are."""
        formatter = self.parser._get_formatter()
        return isinstance(formatter, argparse.RawDescriptionHelpFormatter)

    def below(self) -> list["Command"]:
        """List the commands that it has."""
        return [
            Command((*self.words, name), summaries[name], parser)
            for action in self.parser._actions
            if isinstance(action, argparse._SubParsersAction)
            for summaries in (_summaries(action),)
            for name, parser in action.choices.items()
        ]

    def arguments(self) -> list[argparse.Action]:
        """List its arguments but for commands and ``--help``."""
        left_out = (argparse._SubParsersAction, argparse._HelpAction)
        return [
            action
            for action in self.parser._actions
            if not isinstance(action, left_out) and action.help != argparse.SUPPRESS
        ]

    def alternatives(self) -> list[list[argparse.Action]]:
        """List its options, those together of which only one may be given."""
        options = [each for each in self.arguments() if each.option_strings]
        groups = [
            group._group_actions for group in self.parser._mutually_exclusive_groups
        ]
        grouped = [action for group in groups for action in group]
        return [*([each] for each in options if each not in grouped), *groups]

    def positionals(self) -> list[argparse.Action]:
        """List what is given without the name of an option."""
        return [each for each in self.arguments() if not each.option_strings]

    def help_of(self, action: argparse.Action) -> str:
        """Return the help of an argument, with the values that it names."""
        return self.parser._get_formatter()._expand_help(action) if action.help else ""


def _summaries(
    action: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> dict[str, str]:
    return {each.dest: each.help or "" for each in action._choices_actions}


def all_commands(command: Command) -> Iterator[Command]:
    """Give a command, then all below it."""
    yield command
    for each in command.below():
        yield from all_commands(each)


def takes_value(action: argparse.Action) -> bool:
    """Tell whether an option is followed by a value."""
    return action.nargs != 0


def value_of(action: argparse.Action) -> str:
    """Name the value of an argument: one of its choices, or what it stands for."""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest
