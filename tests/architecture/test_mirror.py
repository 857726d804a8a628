"""Each module has its tests where one looks for them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"

ELSEWHERE: dict[str, str] = {
    # started as a program, so tested as one
    "__main__.py": "tests/daemon/test_cli.py",
    "worker/__main__.py": "tests/daemon/test_crash.py",
    # nothing but fields: what fills them is tested
    "choices.py": "tests/unit/test_config.py",
    "job.py": "tests/unit/resolve/test_text.py",
    "ipc.py": "tests/unit/test_pipe.py",
    "events.py": "tests/unit/engine/test_streams.py",
    "wire/speech.py": "tests/unit/wire/test_codec.py",
    "resolve/plan.py": "tests/unit/resolve/test_blocks.py",
    # an interface: the scripted backend is held to it
    "worker/backend.py": "tests/unit/worker/test_mock.py",
    # a running job: what advances it is tested
    "worker/llama/sequence.py": "tests/unit/worker/llama/test_decoder.py",
}
"""Modules whose tests are not at their mirrored place, and the file where they are."""


def modules() -> list[str]:
    paths = (ROOT / "inferd").rglob("*.py")
    names = [path.relative_to(ROOT / "inferd").as_posix() for path in paths]
    return sorted(name for name in names if not name.endswith("__init__.py"))


def mirrored(module: str) -> Path:
    path = UNIT / module
    return path.with_name(f"test_{path.stem.strip('_')}.py")


@pytest.mark.parametrize("module", modules())
def test_a_module_has_its_test_file(module):
    elsewhere = ELSEWHERE.get(module)
    test = ROOT / elsewhere if elsewhere else mirrored(module)
    assert test.is_file(), f"{test.relative_to(ROOT)} is missing"


def test_every_exception_is_needed():
    assert set(ELSEWHERE) <= set(modules())
    assert [module for module in ELSEWHERE if mirrored(module).exists()] == []


def test_no_test_file_mirrors_nothing():
    wanted = {mirrored(module) for module in modules()}
    assert sorted(set(UNIT.rglob("test_*.py")) - wanted) == []
