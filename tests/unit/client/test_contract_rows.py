"""Each row of the contracts names a test that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|$")


def test_each_row_of_a_contract_names_a_test_that_is_there():
    lines = (ROOT / "docs/python-callbacks.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    named = [match for line in rows if (match := ROW.fullmatch(line))]
    heads = {line for line in rows if not ROW.fullmatch(line)}
    assert heads == {"| row | proved by |", "| --- | --- |"}
    for match in named:
        tree = ast.parse((ROOT / match[1]).read_text())
        tests = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert match[2] in tests, match[0]
    assert len(named) >= 30
