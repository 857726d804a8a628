"""Markdown from tables and docstrings."""

import ast
import inspect
import itertools
from collections.abc import Iterable, Iterator
from types import ModuleType

NOTE = "<!-- Written by tools/regenerate.py; change what it follows from instead. -->\n"


class UnreadableError(Exception):
    """A source cannot be read; one line that names it."""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    """Make text fit into one cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def prose(docstring: str | None) -> str:
    """Turn a docstring's double backticks into Markdown's single ones."""
    return inspect.cleandoc(docstring or "").replace("``", "`")


def first_line(docstring: str | None) -> str:
    """Give a docstring's first sentence."""
    return prose(docstring).partition("\n")[0]


def attribute_docs(module: ModuleType) -> dict[str, dict[str, str]]:
    """Read the string below each attribute, by class and name; Python does not keep it."""
    tree = ast.parse(inspect.getsource(module))
    return {
        node.name: dict(documented(node.body))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Give each annotated name of a class that a string follows, with that string."""
    for statement, follower in itertools.pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(follower, ast.Expr)
            and isinstance(follower.value, ast.Constant)
            and isinstance(follower.value.value, str)
        ):
            yield statement.target.id, prose(follower.value.value)
