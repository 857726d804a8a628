from inferd.server.activity import Activity
from inferd.server.addressees import cancel_all, hand_on
from inferd.server.appends import Appends
from inferd.server.custody import Custody, Parcel
from inferd.server.peer import Peer
from inferd.wire.speech import AppendLine

PEER = Peer(pid=1, uid=2, gid=3)


def activity(request_id: str, *open_ids: str) -> Activity:
    appends = Appends(frozenset(open_ids))
    return Activity(PEER, "s", request_id, 0.0, appends=appends)


def append(request_id: str, attachment_id: str) -> AppendLine:
    return AppendLine(id=request_id, attachment_id=attachment_id, bytes="AAAA")


def test_all_of_an_id_are_cancelled():
    a, b, c = present = [activity("a"), activity("b"), activity("a")]
    cancel_all("a", present)
    assert [each.is_cancelled for each in (a, b, c)] == [True, False, True]


def test_the_first_that_takes_an_append_gets_it():
    other, closed, taker = present = [
        activity("b", "x"),
        activity("a"),
        activity("a", "x"),
    ]
    hand_on(append("a", "x"), 10, Parcel(Custody(1)), present)
    assert [each.appends.n_bytes for each in (other, closed, taker)] == [0, 0, 10]


def test_where_none_takes_it_the_first_of_its_id_fails_and_without_any_nobody():
    one, other = activity("a"), activity("b")
    hand_on(append("a", "x"), 10, Parcel(Custody(1)), [one, other])
    assert (one.failure is None, other.failure is None) == (False, True)
    hand_on(append("c", "x"), 10, Parcel(Custody(1)), [one, other])
