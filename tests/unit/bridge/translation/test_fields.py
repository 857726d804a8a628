import json

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct

from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import STATUS, BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused
from inferd.bridge.translation.sse import event

TABLE = FieldTable(
    "POST /x",
    (
        *honoured("count"),
        *ignored("user"),
        *refused("n", note="only one", neutral=(1, False)),
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


class Wanted(Struct):
    count: int = 0


def ask(**fields: object) -> Wanted:
    return read_body(json.dumps(fields).encode(), TABLE, Wanted)


def refusal(body: bytes) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        read_body(body, TABLE, Wanted)
    return caught.value


def test_each_field_is_treated_as_its_table_says():
    assert ask(count=2, user="x", n=1).count == 2
    assert ask(count=None, n=None).count == 0
    assert ask(n=False).count == 0
    for value in (True, 0, 2, 1.0, "1"):  # equal in Python is not the same in JSON
        error = refusal(json.dumps({"n": value}).encode())
        assert (error.reason, error.param) == (Reason.UNSUPPORTED, "n")
        assert "only one" in str(error)


class Needed(Struct):
    count: int
    user: list[Wanted] = []


def test_a_field_that_is_needed_is_named_wherever_it_is_missing():
    table = FieldTable("POST /x", honoured("count", "user"))
    for body in (b"{}", b'{"count":null}'):
        with pytest.raises(BridgeError) as caught:
            read_body(body, table, Needed)
        assert caught.value.param == "count"
        assert str(caught.value) == "Missing required parameter: 'count'."
    with pytest.raises(BridgeError) as caught:
        read_body(b'{"count":1,"user":[1]}', table, Needed)
    assert caught.value.param == "user[0]"


def test_half_a_surrogate_pair_is_told_with_its_place():
    for body, param in (
        (b'{"count":"\\ud800"}', "count"),
        (b'{"count":[0,{"a":"\\ud83d\\ude00"},{"b":["x\\uDFFFy"]}]}', "count[2].b[0]"),
        (b'{"a":{"\\udc00":1}}', "a.\\udc00"),
        (b'{"a":{"' + b"x" * 9999 + b'":"\\ud800"}}', "a." + "x" * 510),
    ):
        error = refusal(body)
        assert (error.reason, error.param) == (Reason.INVALID_REQUEST, param)
        assert "surrogate pair" in str(error)
    for body in (b'{"a":"\\ud800', b'{"a":"\\\\ud800"', b'"\\ud800"', b"\xff\\ud800"):
        assert refusal(body).param is None
    deep = b'{"a":' + b"[" * 100_000 + b'"\\ud800"' + b"]" * 100_000 + b"}"
    assert refusal(deep).reason is Reason.INVALID_REQUEST


def test_an_unknown_field_is_refused_by_its_name_though_it_is_null():
    error = refusal(b'{"contents":null}')
    assert (error.reason, error.param) == (Reason.UNKNOWN_FIELD, "contents")


def test_a_field_that_is_there_twice_is_refused_and_a_text_with_its_name_is_not():
    error = refusal(b'{"count":1,"user":{"count":3},"count" :2}')
    assert (error.reason, error.param) == (Reason.INVALID_REQUEST, "count")
    assert ask(user=["count", {"count": 2}], count=2).count == 2


def test_few_and_short_names_of_many_are_repeated():
    fields = {f"{'x' * 2000}{number}": 1 for number in range(100)}
    assert len(str(refusal(json.dumps(fields).encode()))) < 5000


def test_a_value_at_fault_is_named_by_its_path():
    error = refusal(b'{"count":"two"}')
    assert (error.reason, error.param) == (Reason.INVALID_REQUEST, "count")


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_read_or_refused_with_400(body):
    status = 200
    try:
        read_body(body, TABLE, Wanted)
    except BridgeError as error:
        status = error.status
    assert status in (200, 400)


def test_deep_nesting_is_refused():
    assert refusal(b'{"count":' + b"[" * 100_000).status == 400


def test_every_reason_has_a_status():
    assert set(STATUS) == set(Reason)


def test_an_event_is_one_paragraph_with_its_name():
    assert event(b"{}") == b"data: {}\n\n"
    assert event(b"{}", "done") == b"event: done\ndata: {}\n\n"
