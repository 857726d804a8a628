import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from inferd.client.media import errors
from inferd.client.media.errors import MEDIA_PACKAGES, MissingExtraError, requirement

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


@pytest.mark.parametrize(
    ("module", "package", "kind"),
    [(module, *both) for module, both in MEDIA_PACKAGES.items()],
)
def test_what_is_missing_is_one_line_with_what_to_type(module, package, kind):
    assert str(MissingExtraError(module)) == (
        f"decoding {kind} needs the package {package}; in a checkout run: make setup; "
        f"elsewhere: {sys.executable} -m pip install '{requirement(package)}'"
    )


def test_what_to_install_is_what_the_project_allows():
    project = tomllib.loads(PROJECT.read_text())["project"]
    allowed = {*map(Requirement, project["optional-dependencies"]["media"])}
    packages = [package for package, _ in MEDIA_PACKAGES.values()]
    assert {Requirement(requirement(package)) for package in packages} == allowed


def test_without_an_installation_any_version_will_do(monkeypatch):
    def requires(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors, "requires", requires)
    assert requirement("av") == "av"
