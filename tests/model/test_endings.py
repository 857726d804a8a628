import random
from collections.abc import Iterator

import pytest

from tests.daemon.endings import WAYS, is_idle, no_more, places, resources_of
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    blocks,
    eventually,
    generate,
    llamacpp,
)

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_CTX = 100_000
LONG = "x" * 60_000
SOON_S = 3.0
"""Seconds in which the worker is idle: far fewer than what is ended would take."""
DEADLINE_MS = 1500
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


def ask(daemon: DaemonProcess, way: str, text: str) -> Connection:
    """Have a request under way that ends in this way, and not for long by itself."""
    client = daemon.connect("infer.v2.sock")
    deadline = {"deadline_ms": DEADLINE_MS} if way == "deadline" else {}
    request = blocks(text, id="r", max_tokens=N_CTX, min_tokens=N_CTX, progress=True)
    client.send(request | deadline)
    return client


def check_free(daemon: DaemonProcess) -> None:
    """Make sure that permit and sequence are free, and the worker at rest."""
    with daemon.admin() as listener:
        assert eventually(lambda: places(listener) == (0, 0), within_s=SOON_S)
    assert eventually(lambda: is_idle(daemon), within_s=SOON_S)
    assert daemon.ask(max_tokens=1)[-1]["stop_reason"] == "length"


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_prompt_is_being_read_frees_its_slot(one_slot: DaemonProcess, way):
    with ask(one_slot, way, LONG) as client:
        while (progress := client.frame())["processed"] == 0:
            pass
        assert progress["processed"] < progress["total"] / 2
        WAYS[way](one_slot, client, "r")
        check_free(one_slot)
        if way != "leaving":
            last = client.frames()[-1]
            expected = "deadline_exceeded" if way == "deadline" else "cancelled"
            assert (last.get("code") or last["stop_reason"]) == expected


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_being_answered_frees_its_slot(one_slot: DaemonProcess, way):
    with ask(one_slot, way, "hello") as client:
        while client.frame()["type"] != "frame":
            pass
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
