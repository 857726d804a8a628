"""Read the package's own source, for promises that hold of all of it."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "inferd"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Give each module's path below the package, and its syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def names_in(tree: ast.Module) -> set[str]:
    """Give every name and attribute that a module uses or imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.ImportFrom(module=module, names=aliases):
                names |= {module or "", *(alias.name for alias in aliases)}
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case _:
                pass
    return names


def users_of(*wanted: str) -> set[str]:
    """Give the modules that use one of these names."""
    return {path for path, tree in modules() if names_in(tree) & set(wanted)}
