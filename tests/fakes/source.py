"""The package's own source, for tests of what it must not do."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "inferd"


@cache
def modules() -> Sequence[tuple[str, ast.Module]]:
    """Give each module's path below the package, and its tree."""
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text()))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def imports(tree: ast.AST) -> Iterator[str]:
    """Give the dotted name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names(tree: ast.AST) -> Iterator[str]:
    """Give every name and dotted name that is used, ``a`` and ``a.b`` of ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield ast.unparse(node)


def calls(tree: ast.AST, *suffixes: str) -> Iterator[ast.Call]:
    """Give the calls of what is written with one of these ends."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(suffixes):
            yield node
