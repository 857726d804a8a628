"""The package's own source, for tests of what it must not do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "inferd"


def tree_of(module: str) -> ast.Module:
    """Parse one module, by its path below the package."""
    return ast.parse((PACKAGE / module).read_text())


def modules(written: str | re.Pattern[str]) -> Iterator[tuple[str, ast.Module]]:
    """Give the path below the package and the tree of modules whose text has a pattern.

    To parse all of them takes seconds, and to keep their trees hundreds of megabytes.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if re.search(written, text):
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(text)


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
