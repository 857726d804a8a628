"""Each command, program and file of a document is run by a test, or the reason is told."""

import re
from typing import Final

from inferd.errors import ErrorCode
from tests.cases import each_case
from tests.documents.catalogue import (
    COMMANDS,
    FILES,
    PROGRAMS,
    RunBy,
    disposition,
)
from tests.documents.pages import PAGES, ROOT, blocks_of, commands_of

SHELL: Final = {"sh", "console"}
OF_THE_SITE: Final = {"{toctree}", "{eval-rst}"}
"""Directives, which building the site reads."""
READ: Final = {"toml", "json"}
"""Languages whose blocks `tests/architecture/test_documents.py` reads on each page."""
DISPOSITIONS: Final = [
    *((page, each) for page, of in COMMANDS.items() for each in of.values()),
    *PROGRAMS.items(),
    *((page, each) for (page, _), each in FILES.items()),
]


@each_case("page", PAGES)
def test_what_becomes_of_a_command_is_told(page):
    assert [each.text for each in commands_of(page) if not disposition(each)] == []


@each_case(("page", "start"), [(p, each) for p, of in COMMANDS.items() for each in of])
def test_an_entry_is_that_of_a_command(page, start):
    reached = [
        next(each for each in COMMANDS[page] if command.text.startswith(each))
        for command in commands_of(page)
    ]
    assert start in reached


@each_case("page", PAGES)
def test_what_becomes_of_other_blocks_is_told(page):
    found = {each.language for each in blocks_of(page)}
    told = {language for of, language in FILES if of == page}
    found -= SHELL | READ | OF_THE_SITE
    assert found == told | ({"python"} if page in PROGRAMS else set())


@each_case(("page", "each"), DISPOSITIONS)
def test_a_test_takes_what_it_runs_from_the_page(page, each):
    if isinstance(each, RunBy):
        text = (ROOT / each.test).read_text()
        assert f'"{page}"' in text or "run_by(" in text
        assert "tests.documents" in text
        return
    assert each.reason.endswith(".")
    for name in re.findall(r"tests/[\w/.]+\w", each.reason):
        assert (ROOT / name).exists(), name


def test_targets_are_those_of_the_makefile():
    wanted = {
        target
        for page in PAGES
        for command in commands_of(page)
        for target in re.findall(r"^(?:sudo )?make ([\w-]+)$", command.text)
    }
    assert {"demo", "test", "install"} <= wanted
    makefile = (ROOT / "Makefile").read_text()
    assert wanted <= set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def test_the_readme_has_what_a_first_reader_needs():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_what_to_do_is_told_for_each_error_code():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    _, _, table = text.partition("| code | what has happened | what to do |\n")
    rows = table.partition("\n\n")[0].splitlines()[1:]
    codes = re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows))
    assert sorted(codes) == sorted(ErrorCode)
