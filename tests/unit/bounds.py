"""Bounds and what their modules say of them."""

import ast
from itertools import pairwise
from pathlib import Path
from types import ModuleType


def unexplained(module: ModuleType) -> list[str]:
    """Give the bounds of a module that have no text below them."""
    assert module.__file__ is not None
    body = ast.parse(Path(module.__file__).read_text()).body
    bounds = [
        (node, below)
        for node, below in pairwise([*body, ast.Pass()])
        if isinstance(node, ast.AnnAssign)
    ]
    assert bounds
    return [ast.unparse(node) for node, below in bounds if not _is_text(below)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
