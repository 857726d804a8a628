import msgspec
import pytest

from inferd import surfaces
from inferd.server.connection.read_ahead import cancel_matching, route_append
from inferd.server.fd_passing.quota import FdQuota, LineFds
from inferd.server.identity.gateways import Principal
from inferd.server.identity.peer import Peer
from inferd.server.media.append_queue import AppendQueue
from inferd.server.request_context import RequestContext
from inferd.wire.requests import CancelLine
from inferd.wire.speech import AppendLine

PEER = Peer(pid=1, uid=2, gid=3)


def context(request_id: str, *open_ids: str, principal: str = "") -> RequestContext:
    return RequestContext(
        PEER,
        surfaces.INFER,
        request_id,
        0.0,
        appends=AppendQueue(frozenset(open_ids)),
        principal=Principal(principal, 7) if principal else None,
    )


def append(request_id: str, attachment_id: str) -> AppendLine:
    return AppendLine(id=request_id, attachment_id=attachment_id, bytes="AAAA")


def test_all_of_an_id_are_cancelled():
    a, b, c = present = [context("a"), context("b"), context("a")]
    cancel_matching(CancelLine(id="a"), present)
    assert [each.is_cancelled for each in (a, b, c)] == [True, False, True]


@pytest.mark.parametrize(
    ("principal", "cancelled"),
    [(None, [True, False, False]), ("ann", [False, True, False]), ("eve", [False] * 3)],
)
def test_of_those_of_an_id_only_the_same_principals_are_meant(principal, cancelled):
    present = [context("a", "x", principal=name) for name in ("", "ann", "bob")]
    cancel_matching(CancelLine(id="a", principal=principal), present)
    assert [each.is_cancelled for each in present] == cancelled
    line = msgspec.structs.replace(append("a", "x"), principal=principal)
    route_append(line, 10, LineFds(FdQuota(1)), present)
    assert [each.appends.n_bytes > 0 for each in present] == cancelled


def test_the_first_that_takes_an_append_gets_it():
    other, closed, taker = present = [
        context("b", "x"),
        context("a"),
        context("a", "x"),
    ]
    route_append(append("a", "x"), 10, LineFds(FdQuota(1)), present)
    assert [each.appends.n_bytes for each in (other, closed, taker)] == [0, 0, 10]


def test_where_none_takes_it_the_first_of_its_id_fails_and_without_any_nobody():
    one, other = context("a"), context("b")
    route_append(append("a", "x"), 10, LineFds(FdQuota(1)), [one, other])
    assert (one.failure is None, other.failure is None) == (False, True)
    route_append(append("c", "x"), 10, LineFds(FdQuota(1)), [one, other])
