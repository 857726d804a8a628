import random
from collections.abc import Iterator

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
    mock,
)

pytestmark = pytest.mark.slow

ONE = {"max_active": 1, "max_queued": 1}
TALKS = mock(tokens=["x"] * 100_000, token_delay_ms=5)
READS = mock(prepare_delay_ms=600_000)
SHOUTS = mock(tokens=["x" * 150_000] * 5 + ["y"] * 10_000, token_delay_ms=50)
MIXED = mock(
    tokens=["x" * 100_000] * 3 + ["y"] * 100_000, token_delay_ms=1, prepare_delay_ms=1
)
DEADLINES_MS = (400, 4000, 40_000)
"""To try in turn: the first after which an answer has begun, however busy the machine."""


@pytest.fixture(scope="module")
def talker() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [TALKS], "admission": ONE}).start()


@pytest.fixture(scope="module")
def reader() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [READS], "admission": ONE}).start()


@pytest.fixture(scope="module")
def shouter() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [SHOUTS], "admission": ONE}).start()


def ask(
    daemon: DaemonProcess, way: str, deadline_ms: int = DEADLINES_MS[0]
) -> Connection:
    """Have a request under way that ends in this way, and not by itself for minutes."""
    client = daemon.connect("infer.v2.sock")
    deadline = {"deadline_ms": deadline_ms} if way == "deadline" else {}
    client.send(blocks(id="r", max_tokens=100_000) | deadline)
    return client


def begun(daemon: DaemonProcess, way: str) -> Connection:
    """Have a request answered that ends in this way, and read its first frame."""
    for deadline_ms in DEADLINES_MS:
        client = ask(daemon, way, deadline_ms)
        if client.frame()["type"] == "frame":
            return client
        client.close()
    raise AssertionError("no answer began")


def written(daemon: DaemonProcess, way: str) -> Connection:
    """Have a request answered that ends in this way, and leave its answer, or the rest, unread."""
    if way == "deadline":
        return begun(daemon, way)
    client = ask(daemon, way)
    with daemon.admin() as listener:

        def n_written() -> int:
            requests = listener.order("requests")["requests"]
            return sum(each["output_tokens"] for each in requests)

        assert eventually(lambda: n_written() > 0)
    return client


def are_soon(daemon: DaemonProcess, expected: tuple[int, int]) -> bool:
    with daemon.admin() as listener:
        return eventually(lambda: places(listener) == expected)


def check_last(way: str, client: Connection, *, has_begun: bool) -> None:
    """Make sure that a client that is still there was told how it ended."""
    if way == "leaving":
        return
    last = client.frames()[-1]
    if way == "deadline" and not has_begun:
        assert last["code"] == "deadline_exceeded"
    else:
        assert last["stop_reason"] == "cancelled"
    client.close()


@pytest.mark.parametrize("way", WAYS)
def test_one_that_waits_frees_its_place(talker: DaemonProcess, way):
    running = talker.begin("running", max_tokens=100_000)
    client = ask(talker, way)
    assert way == "deadline" or are_soon(talker, (1, 1))
    WAYS[way](talker, client, "r")
    assert are_soon(talker, (1, 0))
    check_last(way, client, has_begun=False)
    running.close()
    assert are_soon(talker, (0, 0))


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_read_by_the_worker_frees_its_permit(reader: DaemonProcess, way):
    client = ask(reader, way)
    assert way == "deadline" or are_soon(reader, (1, 0))
    WAYS[way](reader, client, "r")
    assert are_soon(reader, (0, 0))
    check_last(way, client, has_begun=False)


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_being_answered_frees_its_permit(talker: DaemonProcess, way):
    client = begun(talker, way)
    WAYS[way](talker, client, "r")
    assert are_soon(talker, (0, 0))
    check_last(way, client, has_begun=True)
    assert talker.ask(max_tokens=1)[-1]["stop_reason"] == "length"


@pytest.mark.parametrize("way", WAYS)
def test_one_whose_client_does_not_read_frees_its_permit(shouter: DaemonProcess, way):
    client = written(shouter, way)
    WAYS[way](shouter, client, "r")
    assert are_soon(shouter, (0, 0))
    check_last(way, client, has_begun=True)
    assert shouter.ask(max_tokens=1)[-1]["stop_reason"] == "length"


# --- hundreds -------------------------------------------------------------------------------

N_REQUESTS = 400
MOST_AT_ONCE = 12
SEED = 5
ASKS = {
    "infer.sock": lambda **fields: generate(stream=True, **fields),
    "infer.v2.sock": blocks,
    "infer.embed.sock": lambda **fields: {"input": ["a"] * 20, **fields},
    "infer.rerank.sock": lambda **fields: {
        "query": "a",
        "documents": ["a", "b"],
        **fields,
    },
}


class ManyClients:
    """Clients that come, and end their requests in all ways at any time."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.chance = random.Random(SEED)  # noqa: S311  # chance that can be repeated
        self.there: list[tuple[str, str, Connection]] = []
        self.ends: list[str] = []

    def come(self, request_id: str) -> None:
        leaf = self.chance.choice(list(ASKS))
        has_deadline = leaf == "infer.v2.sock"  # without one, it would end by itself
        ways = [way for way in WAYS if way != "deadline" or has_deadline]
        way = self.chance.choice(ways)
        fields: Frame = {"id": request_id}
        if leaf in ("infer.sock", "infer.v2.sock"):
            fields["max_tokens"] = self.chance.choice([0, 5, 100_000])
            fields["progress"] = self.chance.random() < 0.5
        if way == "deadline":
            fields["deadline_ms"] = self.chance.randrange(1, 60)
        client = self.daemon.connect(leaf)
        client.send(ASKS[leaf](**fields))
        self.there.append((way, request_id, client))

    def go(self) -> None:
        """End one of them; whoever stays is told once how it ended."""
        at = self.chance.randrange(len(self.there))
        way, request_id, client = self.there.pop(at)
        WAYS[way](self.daemon, client, request_id)
        if way == "leaving":
            return
        if self.chance.random() < 0.2:  # without reading
            client.close()
            return
        last = client.frames()[-1]
        assert last["id"] == request_id
        self.ends.append(str(last.get("stop_reason") or last.get("code") or "end"))
        client.half_close()
        client.read_eof()
        client.close()


@pytest.mark.long
def test_of_hundreds_of_requests_that_end_at_any_time_nothing_is_left():
    admission = {"max_active": 3, "max_queued": 6}
    with daemons() as make:
        daemon = make({"backend": [MIXED], "admission": admission}).start()
        daemon.ask(max_tokens=1)
        before = resources_of(daemon)
        crowd = ManyClients(daemon)
        for n in range(N_REQUESTS):
            crowd.come(f"r{n}")
            while len(crowd.there) > crowd.chance.randrange(MOST_AT_ONCE):
                crowd.go()
        while crowd.there:
            crowd.go()
        with daemon.admin() as listener:
            assert eventually(lambda: not listener.order("requests")["requests"])
            assert places(listener) == (0, 0)
        assert eventually(lambda: is_idle(daemon))
        assert eventually(lambda: no_more(resources_of(daemon), before))
        assert {"cancelled", "deadline_exceeded", "end"} <= set(crowd.ends)
        running = [daemon.begin(f"s{n}", max_tokens=200) for n in range(9)]
        assert daemon.ask()[-1]["code"] == "queue_full"
        for client in running:
            assert client.frames()[-1]["type"] == "done"
