"""Somebody who speaks to the bridge's helper directly, as the bridge or as another user."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from inferd.bridge.access_log import BridgeLog
from inferd.config.bridge_helper import HelperSettings
from inferd.management.policy import HelperPolicy
from inferd.management.service import HelperPlaces, HelperService
from inferd.models.store.store import ModelStore
from inferd.wire.management import HELPER_FRAMES
from tests.unit.models.store.stores import add_model, open_store

ALLOWED = "https://models.example/public/"
SHA256 = "0" * 64
FORGED = [
    {"command": "remove", "model": "others"},
    {"command": "remove", "model": "../manifests/ours"},
    {"command": "remove", "model": "ours/../others"},
    {"command": "remove", "model": "ours\x00"},
    {"command": "show", "model": "\x1b]0;owned\x07"},
    {"command": "pull", "source": "hf:eve/model"},
    {"command": "pull", "source": f"{ALLOWED}../private/m", "sha256": SHA256},
    {"command": "pull", "source": f"{ALLOWED}%2e%2e/private/m", "sha256": SHA256},
    {"command": "pull", "source": f"{ALLOWED}m?to=https://eve", "sha256": SHA256},
    {"command": "pull", "source": f"{ALLOWED}m\n\x1b[2J", "sha256": SHA256},
    {"command": "pull", "source": "https://models.example@eve/public/m"},
    {"command": "pull", "source": f"{ALLOWED}m"},
    {"command": "pull", "source": "file:///etc/shadow", "sha256": SHA256},
    {"command": "pull", "source": f"{ALLOWED}m", "sha256": SHA256, "model": "a/../b"},
    {"command": "pull", "source": f"{ALLOWED}m", "store": "/etc", "sha256": SHA256},
    {"command": "reload"},
    {"command": "drain"},
    {"command": "prune"},
]
"""What no operator has allowed."""


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = open_store(tmp_path / "models")
    with store.directory:
        add_model(store, "ours", b"GGUF ours")
        add_model(store, "others", b"GGUF others")
        yield store


def service_of(store: ModelStore, log: list[bytes], *uids: int) -> HelperService:
    settings = HelperSettings(
        allow=("list", "show", "pull", "remove"), allow_sources=(ALLOWED,)
    )
    places = HelperPlaces(
        store=store.directory.path, directory=Path("/nowhere"), environ={}
    )
    policy = HelperPolicy(settings, frozenset(uids))
    return HelperService(policy, places, BridgeLog(log.append))


async def send(service: HelperService, *requests: dict[str, Any]) -> list[Any]:
    """Give what each request gets, a connection for each."""
    received = []
    for request in requests:
        ours, theirs = (
            trio.SocketStream(trio.socket.from_stdlib_socket(each))
            for each in socket.socketpair()
        )
        answer = b""
        async with trio.open_nursery() as nursery, ours:
            nursery.start_soon(service.handle, theirs)
            await ours.send_all(json.dumps({"principal": "ada", **request}).encode())
            await ours.send_all(b"\n")
            while data := await ours.receive_some():
                answer += data
        received += [HELPER_FRAMES.decode(line) for line in answer.splitlines()]
    return received


async def test_the_bridge_gets_nothing_that_the_operator_has_not_allowed(store):
    log: list[bytes] = []
    service = service_of(store, log, os.geteuid())
    refusals = await send(service, *FORGED)
    assert len(refusals) == len(FORGED)
    assert {each.code for each in refusals} <= {"invalid_request", "not_allowed"}
    assert store.names() == ["others", "ours"]
    assert len(log) == len(FORGED)
    told = b"".join(log).decode() + "".join(each.message for each in refusals)
    assert not any(character in told for character in "\x00\x07\x1b\x9b\r")
    assert str(store.directory.path) not in told


async def test_another_user_is_refused_before_anything_is_read(store):
    service = service_of(store, [], os.geteuid() + 1)
    ours, theirs = (
        trio.SocketStream(trio.socket.from_stdlib_socket(each))
        for each in socket.socketpair()
    )
    async with trio.open_nursery() as nursery, ours:
        nursery.start_soon(service.handle, theirs)
        [refusal] = (await ours.receive_some()).splitlines()
        assert b"permission_denied" in refusal
