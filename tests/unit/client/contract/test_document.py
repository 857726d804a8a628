"""Each row of the contract's document names tests, and each name is explained there."""

import inspect
import re
from pathlib import Path
from typing import Final

from inferd.client import contract

ROOT: Final = Path(__file__).parents[4]
DOCUMENT: Final = (ROOT / "docs" / "python-contract.md").read_text()
TESTS: Final = re.compile(r"`(test_\w+)`")


def rows() -> list[str]:
    return [line for line in DOCUMENT.splitlines() if line.startswith("| `")]


def test_the_tests_that_prove_a_row_exist():
    sources = [*Path(__file__).parent.glob("test_*.py")]
    sources.append(ROOT / "tests" / "daemon" / "test_client_contract.py")
    defined = set(
        re.findall(r"def (test_\w+)", "".join(each.read_text() for each in sources))
    )
    for row in rows():
        named = TESTS.findall(row.rsplit("|", 2)[1])
        assert named, row
        assert set(named) <= defined, row


def test_all_that_is_public_has_a_row():
    told = set(re.findall(r"`(\w+)\(", "\n".join(rows())))
    told |= set(re.findall(r"^\| `(\w+)", "\n".join(rows()), re.MULTILINE))
    told |= set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows())))
    for name in (
        "SamplingParams",
        "Request",
        "Response",
        "ResponseChunk",
        "InferenceEngine",
    ):
        members = vars(getattr(contract, name))
        public = {each for each in members if not each.startswith("_")}
        public |= set(inspect.get_annotations(getattr(contract, name)))
        assert public - told == set(), name
