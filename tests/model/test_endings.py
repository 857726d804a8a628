import random
from collections.abc import Callable, Iterator

import pytest

from tests.daemon.endings import WAYS, is_idle, no_more, places, resources_of
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    blocks,
    eventually,
    generate,
    llamacpp,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_CTX = 100_000
LONG = "x" * 60_000
DEADLINES_MS = (100, 1000, 10_000, 60_000)
"""To try in turn: the first after which a prompt is being read or answered."""
N_REQUESTS = 60
SEED = 7


@pytest.fixture(scope="module")
def one_slot(tiny_f32) -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make(
            {
                "backend": [llamacpp(tiny_f32, n_ctx=N_CTX)],
                "admission": {"max_active": 1, "max_queued": 0},
            }
        ).start()


def under_way(
    daemon: DaemonProcess, way: str, text: str, is_there: Callable[[Frame], bool]
) -> tuple[Connection, Frame]:
    """Have a request that ends in this way, and not for long by itself.

    Args:
        daemon: which is asked.
        way: how it ends.
        text: its prompt.
        is_there: tells the frame up to which it is read.
    """
    for deadline_ms in DEADLINES_MS:
        client = daemon.connect("infer.v2.sock")
        request = blocks(text, id="r", max_tokens=N_CTX, min_tokens=N_CTX)
        deadline = {"deadline_ms": deadline_ms} if way == "deadline" else {}
        client.send(request | deadline | {"progress": True})
        while (frame := client.frame())["type"] not in ("done", "error"):
            if is_there(frame):
                return client, frame
        client.close()
    raise AssertionError("it ended too early")


def check_free(daemon: DaemonProcess) -> None:
    """Make sure that permit and sequence are free, and the worker at rest."""
    with daemon.admin() as listener:
        assert eventually(lambda: places(listener) == (0, 0))
    assert eventually(lambda: is_idle(daemon))
    assert daemon.ask(max_tokens=1)[-1]["stop_reason"] == "length"


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_prompt_is_being_read_frees_its_slot(one_slot: DaemonProcess, way):
    client, progress = under_way(
        one_slot, way, LONG, lambda frame: bool(frame.get("processed"))
    )
    with client:
        assert progress["processed"] < progress["total"] / 2
        WAYS[way](one_slot, client, "r")
        check_free(one_slot)
        if way != "leaving":
            last = client.frames()[-1]
            expected = "deadline_exceeded" if way == "deadline" else "cancelled"
            assert (last.get("code") or last["stop_reason"]) == expected


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_being_answered_frees_its_slot(one_slot: DaemonProcess, way):
    client, _ = under_way(
        one_slot, way, "hello", lambda frame: frame["type"] == "frame"
    )
    with client:
        WAYS[way](one_slot, client, "r")
        if way == "deadline":
            assert client.frames()[-1]["detail"] == "deadline"
        check_free(one_slot)
        if way in ("cancel", "operator"):
            assert client.frames()[-1]["stop_reason"] == "cancelled"


def test_of_many_requests_that_end_at_any_time_no_sequence_is_left(tiny_f32):
    chance = random.Random(SEED)  # noqa: S311  # chance that can be repeated
    admission = {"max_active": 2, "max_queued": 3}
    with daemons() as make:
        backend = llamacpp(tiny_f32, n_ctx=N_CTX)
        daemon = make({"backend": [backend], "admission": admission}).start()
        daemon.ask(max_tokens=1)
        check_free(daemon)  # what it makes in a thread after its start is made
        before = resources_of(daemon)
        there: list[tuple[str, Connection]] = []
        for n in range(N_REQUESTS):
            client = daemon.connect()
            text = "x" * chance.choice([1, 300, 5000])
            client.send(generate(text, id=f"r{n}", max_tokens=N_CTX))
            there.append((f"r{n}", client))
            while len(there) > chance.randrange(8):
                request_id, client = there.pop(chance.randrange(len(there)))
                way = chance.choice(["cancel", "operator", "leaving"])
                WAYS[way](daemon, client, request_id)
                if way != "leaving":
                    assert client.frames()[-1]["id"] == request_id
        daemon.leave()
        check_free(daemon)
        assert eventually(lambda: no_more(resources_of(daemon), before))
