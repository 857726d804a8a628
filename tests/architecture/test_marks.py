"""`make` finds tests by marks in the text of their files, and keeps some together."""

import re
from pathlib import Path

from tests.scheduling import BY_MODULE, TOGETHER, scope_of

TESTS = Path(__file__).parents[1]
MARK = re.compile(r"mark\.(root|systemd|short_version|long|alone)\b")
ELSEWHERE = {TESTS / "daemon/users.py"}
"""Where ``needs_root`` is made, a name that `make` looks for as well."""


def test_marks_that_make_looks_for_are_written_in_test_files():
    found = {path for path in TESTS.rglob("*.py") if MARK.search(path.read_text())}
    assert {path for path in found if not path.name.startswith("test_")} == ELSEWHERE
    makefile = (TESTS.parent / "Makefile").read_text()
    assert r"'mark\.(root|systemd|short_version|long)|needs_root'" in makefile
    assert r"'mark\.alone'" in makefile


def test_what_shares_users_paths_or_a_container_runs_in_one_process():
    for folder in TOGETHER:
        names = [
            f"tests/{path.relative_to(TESTS)}"
            for path in (TESTS / folder).glob("test_*.py")
        ]
        assert {scope_of(f"{name}::test_a[b]") for name in names} == {folder}
    for folder in BY_MODULE:
        name = f"tests/{folder}/test_a.py"
        assert scope_of(f"{name}::test_b") == scope_of(f"{name}::test_c[d]") == name
    assert scope_of("tests/torture/test_items.py::test_a[b]") != scope_of(
        "tests/torture/test_items.py::test_a[c]"
    )
