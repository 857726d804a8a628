"""Files and functions stay small enough to be read at once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "inferd"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

LONG: dict[str, str] = {}
"""What may be longer, ``module`` or ``module:function``, and why."""

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def long_functions(module: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES:
                yield f"{module}:{node.name}"


def long_things() -> set[str]:
    found: set[str] = set()
    for module in MODULES:
        text = (PACKAGE / module).read_text()
        if len(text.splitlines()) > MAX_FILE_LINES:
            found.add(module)
        found.update(long_functions(module, text))
    return found


def test_only_what_is_listed_is_long():
    assert long_things() == set(LONG)


@pytest.mark.parametrize("n_lines", [MAX_FUNCTION_LINES, MAX_FUNCTION_LINES + 1])
def test_a_function_is_measured_with_its_first_and_last_line(n_lines):
    text = "def f():\n" + "    x\n" * (n_lines - 1)
    assert bool(list(long_functions("m", text))) == (n_lines > MAX_FUNCTION_LINES)
