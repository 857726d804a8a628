"""Manual pages: what they are written with, and what readers of such pages say of them."""

import argparse
import subprocess

import pytest
from hypothesis import given
from hypothesis.strategies import text

from inferd.cli import COMMANDS, GROUPS
from tests.cases import each_case
from tools.documents.arguments import Command, all_commands
from tools.documents.manual import command_page, sentence
from tools.documents.roff import WIDTH, lines_kept, paragraph
from tools.packages import ROOT

MANUAL = ROOT / "share" / "man"
PAGES = sorted(MANUAL.rglob("*.[15]"))


def command(*words: str) -> Command:
    """A command of two options, of which one may be given, an argument and a command."""
    parser = argparse.ArgumentParser(add_help=True)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--all-of-it", action="store_true", help="take 5 %%")
    either.add_argument("-n", "--number", metavar="N")
    parser.add_argument("files", nargs="+", metavar="FILE", help="what is read")
    parser.add_subparsers(metavar="COMMAND").add_parser("less", help="do less")
    return Command(words, "do something", parser)


@given(text())
def test_no_text_is_a_request_to_the_formatter_and_all_of_it_is_ascii(given_text):
    for roff in (paragraph(given_text), lines_kept(given_text)):
        assert roff.isascii()
        body = roff.removeprefix(".EX\n").removesuffix(".EE\n")
        assert not any(line.startswith((".", "'")) for line in body.split("\n"))


def test_words_between_backticks_are_bold_and_lines_are_short():
    assert paragraph("type `a-b` now") == "type \\fBa\\-b\\fR now\n"
    assert paragraph("see [the list](x.md)") == "see the list\n"
    lines = paragraph("five words of some length " * 20).splitlines()
    assert max(map(len, lines)) <= WIDTH


def test_a_page_has_each_argument_and_which_of_them_exclude_each_other():
    page = command_page(command("inferd", "do"))
    assert "[\\fB\\-\\-all\\-of\\-it\\fR | \\fB\\-\\-number\\fR \\fIN\\fR]" in page
    assert "\\fIFILE\\fR ... \\fICOMMAND\\fR ..." in page.replace("\n\\&", " ")
    assert ".TP\n\\fB\\-\\-all\\-of\\-it\\fR\nTake 5 %.\n" in page
    assert ".TP\n\\fB\\-n\\fR, \\fB\\-\\-number\\fR \\fIN\\fR\n\\&\n" in page
    assert "Do less. See \\fBinferd\\-do\\-less(1)\\fR." in page
    assert "\\-\\-help" not in page


def test_a_command_below_a_command_is_found():
    pages = [each.page for each in all_commands(command("inferd"))]
    assert pages == ["inferd", "inferd-less"]


@each_case(
    ("given_text", "expected"),
    [("do it", "Do it."), ("Is it?", "Is it?"), ("", ""), ("a\n  b:", "A b:")],
)
def test_a_help_text_becomes_a_sentence(given_text, expected):
    assert sentence(given_text) == expected


def test_every_command_has_a_page_with_a_name_that_is_found():
    names = {path.stem for path in PAGES}
    wanted = {"inferd", "inferd.toml", *(f"inferd-{name}" for name in COMMANDS)}
    for group, (_, commands) in GROUPS.items():
        wanted |= {f"inferd-{group}-{name}" for name in commands}
    assert wanted <= names


@pytest.mark.slow
@pytest.mark.short_version
def test_readers_of_manual_pages_complain_about_none():
    lint = subprocess.run(
        ["mandoc", "-Tlint", *PAGES], capture_output=True, text=True, check=False
    )
    assert lint.stdout == ""
    for path in PAGES:
        shown = subprocess.run(
            ["man", "--warnings", "--encoding=UTF-8", "--local-file", path],
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stderr == "", path
        found = subprocess.run(
            ["lexgrog", path], capture_output=True, text=True, check=True
        )
        assert f'"{path.stem} - ' in found.stdout
