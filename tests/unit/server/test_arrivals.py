from hypothesis import given, strategies as st

from inferd.errors import InvalidFrameError
from inferd.limits import READ_AHEAD_REQUESTS
from inferd.server.activity import Activity
from inferd.server.arrivals import Arrival, Arrivals, ReadAhead
from inferd.server.limits import LEAST_READ_AHEAD, READ_AHEAD_OF_A_USER
from inferd.server.peer import Peer
from inferd.wire.requests import GenerateRequest

ANNA, BEN = 1000, 1001
N_CONNECTIONS = 40
assert N_CONNECTIONS * READ_AHEAD_REQUESTS > 2 * READ_AHEAD_OF_A_USER

REQUEST = GenerateRequest(messages=[])


def request() -> Arrival[GenerateRequest]:
    peer = Peer(pid=17, uid=ANNA, gid=100)
    return Arrival(REQUEST, Activity(peer, "infer.sock", "r", 0.0, 10))


def filled(ahead: ReadAhead, user: int) -> Arrivals[GenerateRequest]:
    """Read ahead on one connection, as far as there is room."""
    arrivals = Arrivals[GenerateRequest](ahead, user)
    while arrivals.has_room(is_awaited=False):
        arrivals.append(request())
    return arrivals


def test_a_user_with_many_connections_has_few_requests_read_ahead_on_each():
    ahead = ReadAhead()
    all_of_anna = [filled(ahead, ANNA) for _ in range(N_CONNECTIONS)]
    n_full = READ_AHEAD_OF_A_USER // READ_AHEAD_REQUESTS
    assert [len(each) for each in all_of_anna] == [
        *[READ_AHEAD_REQUESTS] * n_full,
        *[LEAST_READ_AHEAD] * (N_CONNECTIONS - n_full),
    ]
    assert len(filled(ahead, BEN)) == READ_AHEAD_REQUESTS


def test_what_is_waited_for_is_read_though_other_connections_have_much():
    ahead = ReadAhead()
    *_, last = [filled(ahead, ANNA) for _ in range(N_CONNECTIONS)]
    while last.has_room(is_awaited=True):
        last.append(request())
    assert len(last) == READ_AHEAD_REQUESTS


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["read", "bad", "take", "clear"]))
    )
)
def test_what_is_counted_is_what_is_there(steps):
    ahead = ReadAhead()
    connections = [Arrivals[GenerateRequest](ahead, user) for user in (ANNA, BEN) * 2]
    for number, step in steps:
        arrivals = connections[number]
        if step == "read":
            arrivals.append(request())
        elif step == "bad":
            arrivals.append(InvalidFrameError("no JSON"))
        elif step == "take" and len(arrivals):
            arrivals.take()
        elif step == "clear":
            n_requests = len(list(arrivals))
            assert len(arrivals.clear()) == n_requests
        for index, user in enumerate((ANNA, BEN)):
            there = len(connections[index]) + len(connections[index + 2])
            assert ahead.count(user) == there
        assert arrivals.n_bytes == 10 * len(list(arrivals))
    for each in connections:
        each.clear()
    assert not ahead._users
