import pytest
from hypothesis import given, settings, strategies as st

from inferd.models.convert.protobuf import fields, integers
from tests.unit.models.convert.files import field, varint

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.integers(0, (1 << 64) - 1) | st.binary()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 1 << 20), VALUES)))
def test_fields_come_out_as_they_went_in(written):
    message = b"".join(field(number, value) for number, value in written)
    read = [
        (each.number, each.integer if isinstance(value, int) else bytes(each.data))
        for each, (_, value) in zip(fields(memoryview(message)), written, strict=True)
    ]
    assert read == written


@settings(max_examples=50)
@given(st.lists(INTEGERS))
def test_packed_integers_come_out_as_they_went_in(written):
    data = b"".join(map(varint, written))
    assert list(integers(memoryview(data))) == written


def test_bytes_are_text_where_one_asks():
    [read] = fields(memoryview(field(3, "Grüße")))
    assert read.text == "Grüße"


@pytest.mark.parametrize("kind", [1, 3, 4, 5])
def test_other_kinds_of_field_are_refused(kind):
    message = varint(9 << 3 | kind) + bytes(8)
    with pytest.raises(ValueError, match=f"field 9 has wire type {kind}"):
        list(fields(memoryview(message)))
