"""What `make install` does with models, and where it puts what documents them."""

import re
import subprocess
from pathlib import Path

import pytest

from inferd.models.embedded import EMBEDDED_MODELS
from tools import install
from tools.packages import ROOT
from tools.releases import STORED_LISTED
from tools.service import DOCUMENTS, STATE, placed

RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "$(dirname "$0")/asked"
test ! -e "$(dirname "$0")/down"
"""
"""An ``inferd`` that writes down what it was asked, and may fail."""


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A release with such a command; the machine's state is in another directory."""
    for name in ("bin", "share", "lib"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "bin" / "inferd").write_text(RECORDER)
    (tmp_path / "bin" / "inferd").chmod(0o755)
    taken: list[Path] = []
    monkeypatch.setattr(install, "take_state_directory", taken.append)
    yield tmp_path
    assert taken == [STATE]


def test_the_embedded_models_come_into_the_machine_s_store_and_are_listed(release):
    install.bring_models(release)
    asked = (release / "bin" / "asked").read_text().splitlines()
    references = [model.reference for model in EMBEDDED_MODELS.values()]
    assert asked == ["model", "pull", "--system", "--if-missing", *references]
    listed = (release / STORED_LISTED).read_text().splitlines()
    assert listed == [model.sha256 for model in EMBEDDED_MODELS.values()]


def test_a_release_whose_models_cannot_be_had_is_not_complete(release):
    (release / "bin" / "down").touch()
    with pytest.raises(subprocess.CalledProcessError):
        install.bring_models(release)
    assert not (release / STORED_LISTED).exists()


def test_pages_and_completions_go_where_they_are_looked_for(tmp_path):
    (tmp_path / "systemd").symlink_to(ROOT / "systemd")
    assert not [path for path in placed(tmp_path) if path.is_relative_to(DOCUMENTS)]
    for name in ("man", "zsh", "fish", "bash-completion"):
        (tmp_path / name).symlink_to(ROOT / "share" / name)
    files = placed(tmp_path)
    for name in ("man/man1/inferd-serve.1", "zsh/site-functions/_inferd"):
        assert (
            files[DOCUMENTS / name].read_bytes() == (ROOT / "share" / name).read_bytes()
        )


def test_what_the_installed_documents_lead_to_is_installed():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            place = (page.parent / target).resolve().relative_to(ROOT)
            assert place.parts[0] in install.SHARED, f"{page.name}: {target}"
    assert set(install.SHARED) <= set(install.SOURCES)
