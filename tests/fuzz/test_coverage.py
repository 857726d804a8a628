import importlib.util

import pytest

from fuzz.corpus import SEEDS, SURFACES
from fuzz.coverage import main, write_seeds


def test_without_atheris_it_says_that_it_does_nothing(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main() == 0
    assert "SKIPPED" in capsys.readouterr().err


@pytest.mark.parametrize("surface", SURFACES)
def test_a_seed_is_a_file_that_begins_with_its_surface(tmp_path, surface):
    write_seeds(tmp_path)
    files = [path.read_bytes() for path in tmp_path.glob(f"{surface}-*")]
    assert sorted(data[1:] for data in files) == sorted(SEEDS[surface])
    assert {SURFACES[data[0]] for data in files} == {surface}
