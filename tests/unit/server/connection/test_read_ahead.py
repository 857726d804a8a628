from hypothesis import given, strategies as st

from inferd import surfaces
from inferd.errors import InvalidFrameError
from inferd.limits.connections import READ_AHEAD_REQUESTS
from inferd.limits.server import READ_AHEAD_MIN, READ_AHEAD_PER_USER
from inferd.server.connection.read_ahead import (
    PendingRequest,
    ReadAheadCounter,
    ReadAheadQueue,
)
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.wire.requests import GenerateRequest

ANNA, BEN = 1000, 1001
N_CONNECTIONS = 40
assert N_CONNECTIONS * READ_AHEAD_REQUESTS > 2 * READ_AHEAD_PER_USER

REQUEST = GenerateRequest(messages=[])


def request() -> PendingRequest[GenerateRequest]:
    peer = Peer(pid=17, uid=ANNA, gid=100)
    return PendingRequest(REQUEST, RequestContext(peer, surfaces.INFER, "r", 0.0, 10))


def filled(ahead: ReadAheadCounter, user: int) -> ReadAheadQueue[GenerateRequest]:
    """Read ahead on one connection, up to the bound."""
    queue = ReadAheadQueue[GenerateRequest](ahead, user)
    while queue.accepts_request(is_awaited=False):
        queue.append(request())
    return queue


def test_a_user_with_many_connections_has_few_requests_read_ahead_on_each():
    ahead = ReadAheadCounter()
    all_of_anna = [filled(ahead, ANNA) for _ in range(N_CONNECTIONS)]
    n_full = READ_AHEAD_PER_USER // READ_AHEAD_REQUESTS
    assert [len(each) for each in all_of_anna] == [
        *[READ_AHEAD_REQUESTS] * n_full,
        *[READ_AHEAD_MIN] * (N_CONNECTIONS - n_full),
    ]
    assert len(filled(ahead, BEN)) == READ_AHEAD_REQUESTS


def test_what_is_waited_for_is_read_though_other_connections_have_much():
    ahead = ReadAheadCounter()
    *_, last = [filled(ahead, ANNA) for _ in range(N_CONNECTIONS)]
    while last.accepts_request(is_awaited=True):
        last.append(request())
    assert len(last) == READ_AHEAD_REQUESTS


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["read", "bad", "take", "clear"]))
    )
)
def test_what_is_counted_is_what_is_there(steps):
    ahead = ReadAheadCounter()
    connections = [
        ReadAheadQueue[GenerateRequest](ahead, user) for user in (ANNA, BEN) * 2
    ]
    for number, step in steps:
        queue = connections[number]
        if step == "read":
            queue.append(request())
        elif step == "bad":
            queue.append(InvalidFrameError("no JSON"))
        elif step == "take" and len(queue):
            queue.take()
        elif step == "clear":
            n_requests = len(list(queue))
            assert len(queue.clear()) == n_requests
        for index, user in enumerate((ANNA, BEN)):
            there = len(connections[index]) + len(connections[index + 2])
            assert ahead.count(user) == there
        assert queue.n_bytes == 10 * len(list(queue))
    for each in connections:
        each.clear()
    assert not ahead._users
