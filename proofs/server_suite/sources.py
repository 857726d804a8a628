"""The other project's tests: from the sources of our binding to llama.cpp."""

import ast
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.peers.source import sources, version
from inferd.paths import cache_directory
from proofs.server_suite.expected import LEFT_OUT, LeftOut

TESTS: Final = "vendor/llama.cpp/tools/server/tests"
LICENCE: Final = "vendor/llama.cpp/LICENSE"


def fetched_suite() -> Path:
    """Return the directory of the tests in the cache; fetch them if they are not there."""
    target = cache_directory() / "server-suite" / version()
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            sources() as binding,
            TemporaryDirectory(dir=target.parent, prefix=".partial-") as scratch,
        ):
            suite = Path(scratch) / "suite"
            shutil.copytree(binding / TESTS, suite)
            shutil.copy(binding / LICENCE, suite)
            suite.rename(target)
    return target


def copy_suite(suite: Path, target: Path) -> frozenset[str]:
    """Copy the tests, without the assertions that are left out.

    Returns:
        The cases that lack some, as the names of their functions: ``unit/FILE::NAME``.
    """
    shutil.copytree(suite, target)
    lacking = {name for each in LEFT_OUT for name in each.functions}
    for file in {each.file for each in LEFT_OUT}:
        path = target / file
        text, functions = without(
            path.read_text(), [each for each in LEFT_OUT if each.file == file]
        )
        path.write_text(text)
        lacking |= {f"{file}::{name}" for name in functions}
    return frozenset(lacking)


def without(text: str, left_out: Sequence[LeftOut]) -> tuple[str, set[str]]:
    """Take assertions of one line out of a module; give it, and the functions that had them.

    Raises:
        AssertionError: one is not there.
    """
    lines = text.splitlines()
    functions = [
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    ]
    lacking: set[str] = set()
    for each in left_out:
        found = [
            number
            for number, line in enumerate(lines)
            if each.fragment in line and line.lstrip().startswith("assert ")
        ]
        if not found:
            raise AssertionError(f"{each.file} has no {each.fragment!r}")
        for number in found:
            indent = lines[number][: -len(lines[number].lstrip())]
            lines[number] = f"{indent}pass"
            lacking |= {
                each.name
                for each in functions
                if each.lineno <= number + 1 <= (each.end_lineno or 0)
            }
    return "\n".join(lines) + "\n", lacking
