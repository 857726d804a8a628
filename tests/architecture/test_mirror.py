"""Tests lie where one looks for them: a folder of tests for each package of ``inferd``."""

from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "inferd"
UNIT = ROOT / "tests" / "unit"
MAX_MODULES = 15
"""Modules of one package: a folder that has more holds more than one idea."""


def packages() -> list[str]:
    found = {path.parent.relative_to(PRODUCT) for path in PRODUCT.rglob("*.py")}
    return sorted(path.as_posix() for path in found if path != Path())


@each_case("package", packages())
def test_a_package_has_its_folder_of_tests(package):
    assert list((UNIT / package).rglob("test_*.py"))


def test_no_folder_of_tests_is_of_no_package():
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    assert {path.as_posix() for path in folders} - {".", *packages()} == set()


@each_case("package", packages())
def test_a_package_has_few_modules(package):
    modules = [path.name for path in (PRODUCT / package).glob("*.py")]
    assert len(set(modules) - {"__init__.py", "__main__.py"}) <= MAX_MODULES
