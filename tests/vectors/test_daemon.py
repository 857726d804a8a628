import json
import os
import tomllib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pytest

from inferd.wire.codec import (
    decode_blocks_response,
    decode_embed_response,
    decode_reply,
    decode_rerank_response,
    decode_text_response,
)
from inferd.wire.status import CapabilitiesFrame, LifecycleFrame
from protocol.player import play, settle
from protocol.vector import PROFILES, Vector, all_vectors, name_of, read_vector
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess

pytestmark = pytest.mark.slow

TIMEOUT_S: Final = 90.0
ANY_PROFILE: Final = "plain"
"""The daemon of vectors that do not care."""

DaemonFor = Callable[[str], DaemonProcess]


def read_admin(line: bytes) -> object:
    match json.loads(line):
        case {"type": "reply"}:
            return decode_reply(line)
        case {"status": "capabilities"}:
            return msgspec.json.decode(line, type=CapabilitiesFrame)
        case _:
            return msgspec.json.decode(line, type=LifecycleFrame)


READERS: Final[dict[str, Callable[[bytes], object]]] = {
    "v1": decode_text_response,
    "v2": decode_blocks_response,
    "embed": decode_embed_response,
    "rerank": decode_rerank_response,
    "admin": read_admin,
}


@pytest.fixture(scope="module")
def daemon_for() -> Iterator[DaemonFor]:
    """Start one daemon for all vectors that need the same profile."""
    running: dict[str, DaemonProcess] = {}
    with daemons() as make:

        def start(profile: str) -> DaemonProcess:
            if profile not in running:
                config = tomllib.loads((PROFILES / f"{profile}.toml").read_text())
                if "access" in config:
                    config["access"]["gateways"]["uids"] = [os.getuid()]
                running[profile] = make(config).start()
            return running[profile]

        yield start


def check_that_a_client_reads_all_of_it(
    connection: str, direction: str, line: bytes
) -> None:
    """What the daemon sends is what its own client knows, and nothing besides."""
    if direction == "<":
        frame = READERS[connection.partition("#")[0]](line)
        assert json.loads(msgspec.json.encode(frame)) == json.loads(line)


@pytest.mark.parametrize(
    "vector",
    [pytest.param(read_vector(path), id=name_of(path)) for path in all_vectors()],
)
def test_the_daemon_answers_as_the_vector_says(daemon_for: DaemonFor, vector: Vector):
    directory = daemon_for(vector.profile or ANY_PROFILE).directory
    settle(directory, timeout_s=TIMEOUT_S)
    play(
        vector,
        directory,
        timeout_s=TIMEOUT_S,
        trace=check_that_a_client_reads_all_of_it,
    )
