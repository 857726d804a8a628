from contextlib import ExitStack, contextmanager

from inferd.server.connection.limit import ConnectionLimit
from inferd.server.listen.acceptor import (
    ListenerSpec,
    refusal_frame,
    unserved_listener,
)
from inferd.server.listen.inference import OpenSockets
from inferd.surfaces import EMBED, INFER


async def serve(_):
    pass


def served(surface):
    limit = ConnectionLimit(1)
    return ListenerSpec(
        surface, serve, limit, refusal_frame, may_use_reserve_fd=False, mode=0o600
    )


def test_sockets_are_opened_once_and_those_that_still_refuse_are_told():
    opened, closed = [], []

    @contextmanager
    def accept(spec):
        opened.append(spec.leaf)
        yield
        closed.append(spec.leaf)

    with ExitStack() as stack:
        sockets = OpenSockets(accept, stack)
        assert sockets.add([unserved_listener(EMBED)]) == []
        assert sockets.add([served(INFER), unserved_listener(EMBED)]) == []
        assert sockets.add([served(INFER), served(EMBED)]) == [EMBED.socket]
        assert opened == [EMBED.socket, INFER.socket]
        assert closed == []
    assert closed == [INFER.socket, EMBED.socket]
