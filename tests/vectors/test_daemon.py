import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import Connection, DaemonProcess
from tests.vectors.vector import (
    FOLDERS,
    Frame,
    Step,
    Vector,
    matches,
    only_members,
    read_vectors,
)

pytestmark = pytest.mark.slow

CHUNK_BYTES = 1024 * 1024
VECTORS = read_vectors(*FOLDERS)

DaemonFor = Callable[[Frame], DaemonProcess]


@pytest.fixture(scope="module")
def daemon_for() -> Iterator[DaemonFor]:
    """Start one daemon for all vectors that want the same configuration."""
    running: dict[str, DaemonProcess] = {}
    with daemons() as make:

        def start(config: Frame) -> DaemonProcess:
            key = json.dumps(config, sort_keys=True)
            if key not in running:
                running[key] = make(config).start()
            running[key].catch_up()
            running[key].ask(max_tokens=1)  # so no vector counts the deaths of others
            return running[key]

        yield start


def replay(daemon: DaemonProcess, vector: Vector) -> None:
    connections: dict[str, Connection] = {}
    with ExitStack() as stack:
        for number, step in enumerate(vector.exchange):
            name = step.on or vector.surface
            if name not in connections:
                connections[name] = stack.enter_context(connect(daemon, name))
            try:
                take(step, connections[name])
            except AssertionError as error:
                raise AssertionError(f"step {number}, on {name}: {error}") from error


def connect(daemon: DaemonProcess, name: str) -> Connection:
    surface = name.partition("#")[0]
    return {"v1": daemon.connect, "admin": daemon.admin}[surface]()


def take(step: Step, connection: Connection) -> None:
    data = step.sent
    connection.pour(
        data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)
    )
    if step.end_of_sending:
        connection.half_close()
    elif step.expect is not None:
        frame = connection.frame()
        assert matches(step.expect, frame), f"{frame} instead of {step.expect}"
    elif step.expect_at_least is not None:
        frame = only_members(step.expect_at_least, connection.frame())
        assert matches(step.expect_at_least, frame), frame
    elif step.expect_close:
        connection.read_eof()


@pytest.mark.parametrize(
    "vector", [pytest.param(vector, id=name) for name, vector in VECTORS.items()]
)
def test_the_daemon_answers_as_the_vector_says(daemon_for: DaemonFor, vector: Vector):
    replay(daemon_for(vector.daemon), vector)


def test_few_daemons_are_enough_for_all_vectors():
    assert len({json.dumps(vector.daemon) for vector in VECTORS.values()}) <= 5
