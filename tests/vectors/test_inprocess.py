"""The vectors against a daemon in the test's own event loop."""

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from inferd.app import make_daemon
from inferd.cli.commands.serve import locate_models
from inferd.client.sync import wait_until_ready
from inferd.config.parse import parse_config
from inferd.config.settings import Config, GatewayRule
from protocol.player import play, settle
from protocol.vector import PROFILES, Vector, all_vectors, read_vector

pytestmark = pytest.mark.slow

TIMEOUT_S: Final = 90.0
ANY_PROFILE: Final = "plain"
EVERY: Final = 4
"""One vector in so many of each profile, and its first: all are played by `test_daemon.py`, and
what a daemon in another program's event loop would do otherwise does not depend on which."""


def vectors_by_profile() -> dict[str, list[Vector]]:
    by_profile: defaultdict[str, list[Vector]] = defaultdict(list)
    for vector in map(read_vector, all_vectors()):
        by_profile[vector.profile or ANY_PROFILE].append(vector)
    return {profile: vectors[::EVERY] for profile, vectors in by_profile.items()}


VECTORS: Final = vectors_by_profile()


def config_for(profile: str, directory: Path) -> Config:
    config = parse_config((PROFILES / f"{profile}.toml").read_text())
    listen = msgspec.structs.replace(config.listen, directory=str(directory))
    access = config.access
    if access.gateways is not None:
        gateways = GatewayRule(uids=(os.getuid(),))
        access = msgspec.structs.replace(access, gateways=gateways)
    return msgspec.structs.replace(config, listen=listen, access=access)


def replay(vectors: list[Vector], directory: Path) -> None:
    wait_until_ready(directory, timeout_s=TIMEOUT_S)
    for vector in vectors:
        settle(directory, timeout_s=TIMEOUT_S)
        play(vector, directory, timeout_s=TIMEOUT_S)


async def replay_all(vectors: list[Vector], profile: str, directory: Path) -> None:
    config = config_for(profile, directory)
    daemon = make_daemon(config, locate_models(config))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.run)
        await trio.to_thread.run_sync(replay, vectors, directory)
        nursery.cancel_scope.cancel()


@pytest.mark.long
@pytest.mark.parametrize("profile", sorted(VECTORS))
async def test_a_daemon_in_this_process_answers_as_the_vectors_say(profile, short_dir):
    await replay_all(VECTORS[profile], profile, short_dir / "run")


@pytest.mark.long
async def test_a_vector_without_a_profile_needs_no_token(short_dir):
    paths = [path for path in all_vectors() if path.parent.name != "hostile"]
    vectors = [each for each in map(read_vector, paths) if each.profile is None]
    assert vectors
    await replay_all(vectors, "dies", short_dir / "run")
