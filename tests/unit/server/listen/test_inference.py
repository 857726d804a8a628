from contextlib import ExitStack, contextmanager

import pytest

from inferd.server.connection.limit import ConnectionLimit
from inferd.server.listen.acceptor import Acceptor, ListenerSpec, refusal_frame
from inferd.server.listen.inference import InferenceSockets
from inferd.server.telemetry.metrics import Metrics
from inferd.service.bind import ListenError
from inferd.surfaces import EMBED, INFER, RERANK

TEXT, VECTORS, RANKS = (each.socket for each in (INFER, EMBED, RERANK))


async def serve(_):
    pass


def spec(surface):
    limit = ConnectionLimit(1)
    return ListenerSpec(
        surface, serve, limit, refusal_frame, may_use_reserve_fd=False, mode=0o600
    )


class Home:
    """Sockets that are opened as far as there is no obstacle, the second one inherited."""

    def __init__(self, stack: ExitStack) -> None:
        self.acceptor = Acceptor(Metrics())
        self.events: list[str] = []
        self.obstacles: set[str] = set()
        self.sockets = InferenceSockets(
            map(spec, (INFER, EMBED, RERANK)),
            [VECTORS],
            self.open,
            self.acceptor,
            stack,
        )

    @contextmanager
    def open(self, spec):
        if spec.leaf in self.obstacles:
            raise ListenError(f"{spec.leaf} is taken")
        self.events.append(f"open {spec.leaf}")
        yield
        self.events.append(f"close {spec.leaf}")


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_sockets_are_opened_once_and_refuse_while_no_backend_serves_them(stack):
    home = Home(stack)
    for served, opened in (
        ([], {VECTORS}),
        ([TEXT], {TEXT, VECTORS}),
        ([TEXT, VECTORS], {TEXT, VECTORS}),
        ([RANKS], {TEXT, VECTORS, RANKS}),
        ([], {TEXT, VECTORS, RANKS}),
        ([TEXT], {TEXT, VECTORS, RANKS}),
    ):
        assert home.sockets.serve(served) == []
        assert {*home.sockets.opened} == opened
        assert home.sockets.served == {*served}
        assert opened - {*home.acceptor.unserved} == {*served}
    stack.close()
    opens = [f"open {leaf}" for leaf in (VECTORS, TEXT, RANKS)]
    assert home.events == [*opens, *(f"close {x}" for x in (RANKS, TEXT, VECTORS))]


def test_a_socket_that_cannot_be_opened_keeps_back_no_other_and_is_tried_again(stack):
    home = Home(stack)
    home.obstacles = {TEXT}
    assert home.sockets.serve([TEXT, RANKS]) == [f"{TEXT} is taken"]
    assert home.sockets.opened == [VECTORS, RANKS]
    home.obstacles.clear()
    assert home.sockets.serve([TEXT, RANKS]) == []
    assert home.sockets.served == {TEXT, RANKS}
