"""The bridge, its helper and a daemon, each a process: who may have what done."""

import os
from collections.abc import Iterator

import httpx2
import pytest

from tests.daemon.bridge import BridgeProcess, bridge_to, command, helper_of
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock
from tests.documents.pages import texts
from tests.unit.models.store.stores import add_model, open_store

pytestmark = pytest.mark.slow

[ALLOWED] = texts("docs/bridge.md", "toml")
"""What the page allows the helper."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        made = make({"backend": [mock(tokens=["hi"])]})
        with made.config_file.open("a") as file:
            file.write(f'\n[bridge]\ntokens = "{made.scratch}/tokens.json"\n')
            file.write(
                '[bridge_helper]\nallow = ["list", "remove", "status", "load"]\n'
            )
        yield made.start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    with bridge_to(daemon) as made:
        yield made


def test_without_a_helper_the_bridge_says_what_is_missing(bridge):
    answer = httpx2.get(f"{bridge.address}/admin/backends")
    assert answer.status_code == 501
    assert "inferd bridge helper" in answer.json()["error"]["message"]


def test_a_helper_does_what_is_allowed_for_those_who_may(daemon, bridge):
    store = open_store(daemon.scratch / "models")
    with store.directory:
        add_model(store, "ours", b"GGUF")
    plain = command(daemon, "token", "add", "ada").stdout.strip()
    head = {"authorization": f"Bearer {plain}"}
    with helper_of(daemon), httpx2.Client(base_url=bridge.address) as client:
        [backend] = client.get("/admin/backends").json()["backends"]
        assert (backend["name"], backend["ready"]) == ("mock", True)
        loaded = client.post("/admin/load", json={"model": "mock"})
        assert loaded.status_code == 400
        assert "demand" in loaded.json()["error"]["message"]
        assert client.post("/admin/reload").status_code == 403
        [model] = client.get("/admin/models").json()["models"]
        assert model["name"] == "ours"
        removed = client.delete("/admin/models/ours")
        assert removed.status_code == 403
        assert "source" in removed.json()["error"]["message"]
        refused = client.get("/admin/models", headers=head)
        assert refused.status_code == 403
        assert "scope models" in refused.json()["error"]["message"]
    log = (daemon.scratch / "helper.stderr").read_text()
    assert f'"peer_uid":{os.getuid()},"principal":"local","command":"list"' in log
