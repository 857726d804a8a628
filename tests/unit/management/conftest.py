import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inferd.bridge.access_log import BridgeLog
from inferd.config.bridge_helper import HelperSettings
from inferd.management.policy import HelperPolicy
from inferd.management.service import HelperPlaces, HelperService
from inferd.models.store.store import ModelStore
from tests.fakes.hub import Hub, running_hub
from tests.unit.models.store.stores import open_store

ALL = ("list", "show", "pull", "remove", "status", "load", "unload", "reload")


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
    running.released.clear()
    yield running
    running.released.set()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    store = open_store(tmp_path / "models")
    with store.directory:
        yield store


@pytest.fixture
def serve(store: ModelStore, tmp_path: Path) -> Callable[..., HelperService]:
    def make(
        settings: HelperSettings,
        own_uid: int | None = None,
        hub: Hub | None = None,
    ) -> HelperService:
        environ = {**os.environ, "HF_ENDPOINT": hub.endpoint if hub else ""}
        places = HelperPlaces(
            store=store.directory.path,
            directory=tmp_path / "no-daemon",
            environ=environ,
            ca_file=str(hub.ca_file) if hub else None,
        )
        lines: list[bytes] = []
        uid = os.geteuid() if own_uid is None else own_uid
        policy = HelperPolicy(settings, frozenset({uid}))
        service = HelperService(policy, places, BridgeLog(lines.append))
        vars(service)["lines"] = lines
        return service

    return make


@pytest.fixture
def allowing() -> Callable[..., HelperSettings]:
    def make(*sources: str, **fields: Any) -> HelperSettings:
        fields = {"allow": ALL, "min_free_bytes": 0, **fields}
        return HelperSettings(allow_sources=sources, **fields)

    return make


@pytest.fixture
def serve_hub(
    serve: Callable[..., HelperService],
    allowing: Callable[..., HelperSettings],
    hub: Hub,
) -> Callable[..., HelperService]:
    return lambda *sources, **fields: serve(allowing(*sources, **fields), hub=hub)
