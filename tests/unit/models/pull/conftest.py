import os
from collections.abc import Iterator

import pytest

from inferd.models.pull.process import Downloader
from inferd.models.store.store import ModelStore
from tests.fakes.hub import Hub, running_hub
from tests.unit.models.store.stores import assert_whole, open_store


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(running: Hub) -> Iterator[Hub]:
    """A hub without files, of the module."""
    running.files.clear()
    running.repositories.clear()
    running.behaviours.clear()
    running.asked.clear()
    running.released.clear()
    yield running
    running.released.set()


@pytest.fixture(scope="module")
def shared(running: Hub) -> Iterator[Downloader]:
    """A downloader for all tests of a module that leave it running."""
    environ = os.environ | {"HF_ENDPOINT": running.endpoint}
    with Downloader(environ, str(running.ca_file)) as downloader:
        yield downloader


@pytest.fixture
def downloader(running: Hub) -> Iterator[Downloader]:
    """A downloader of the test alone."""
    environ = os.environ | {"HF_ENDPOINT": running.endpoint}
    with Downloader(environ, str(running.ca_file)) as downloader:
        yield downloader


@pytest.fixture
def store(tmp_path) -> Iterator[ModelStore]:
    """A store, which is whole when the test ends."""
    store = open_store(tmp_path / "models")
    with store.directory:
        yield store
        assert_whole(store)
