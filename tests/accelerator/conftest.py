from pathlib import Path

import pytest

from tests.accelerator.built import Driver, ask_driver, built_kind
from tests.daemon.fixtures import make_daemon, pytest_runtest_makereport
from tools.accelerator_trial.random_model import SHAPES, write_random_model

__all__ = ["make_daemon", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def kind() -> str:
    """What llama.cpp was built for."""
    return built_kind()


@pytest.fixture(scope="session")
def driver(kind, tmp_path_factory) -> Driver:
    """The first device, as another program tells it."""
    return ask_driver(kind, tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A model of many small layers."""
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    return write_random_model(path, SHAPES["small"])
