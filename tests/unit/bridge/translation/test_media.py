import base64

import pytest
from hypothesis import given, strategies as st

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.media import (
    EncodedMedium,
    MediaOfRequest,
    read_base64,
    read_picture_url,
)
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.wire.blocks import AudioBlock, ImageBlock
from tests.cases import each_case


def test_media_are_numbered_in_their_order():
    media = MediaOfRequest()
    assert media.picture(b"p", "a") == ImageBlock("1")
    assert media.sound(b"s", "b") == AudioBlock("2")
    assert media.found == [
        EncodedMedium("picture", b"p", "a", "1"),
        EncodedMedium("sound", b"s", "b", "2"),
    ]


def test_there_are_as_many_as_the_daemon_takes():
    media = MediaOfRequest()
    for _ in range(MAX_ATTACHMENTS):
        media.picture(b"", "here")
    with pytest.raises(BridgeError, match="at most 32") as caught:
        media.sound(b"", "there")
    assert caught.value.param == "there"


@given(st.binary(max_size=100), st.sampled_from(["image/png", "IMAGE/JPEG", ""]))
def test_a_picture_in_an_address_comes_out_of_it(data, kind):
    for scheme in ("data:", "DATA:"):
        url = f"{scheme}{kind};name=a;base64,{base64.b64encode(data).decode()}"
        assert read_picture_url(url, "url") == data


@each_case(
    ("url", "reason", "text"),
    [
        ("http://127.0.0.1/secret", Reason.UNSUPPORTED, "fetches nothing"),
        ("https://example.org/a.png", Reason.UNSUPPORTED, "fetches nothing"),
        ("file:///etc/passwd", Reason.UNSUPPORTED, "fetches nothing"),
        ("", Reason.UNSUPPORTED, "fetches nothing"),
        ("data:image/png,abc", Reason.INVALID_REQUEST, "base64,"),
        ("data:", Reason.INVALID_REQUEST, "base64,"),
        ("data:" + "a" * 500 + ";base64,AA==", Reason.INVALID_REQUEST, "base64,"),
        ("data:text/html;base64,AA==", Reason.INVALID_REQUEST, "no type of a picture"),
        ("data:image/png;base64,A", Reason.INVALID_REQUEST, "not base64"),
        ("data:image/png;base64,A\nA==", Reason.INVALID_REQUEST, "not base64"),
        ("data:image/png;base64,ÄA==", Reason.INVALID_REQUEST, "not base64"),
    ],
)
def test_other_addresses_are_refused_with_their_place(url, reason, text):
    with pytest.raises(BridgeError, match=text) as caught:
        read_picture_url(url, "messages[0].url")
    assert (caught.value.reason, caught.value.param) == (reason, "messages[0].url")


@given(st.text(max_size=40))
def test_any_text_is_base64_or_refused(text):
    try:
        data = read_base64(text, "data")
    except BridgeError as error:
        assert error.reason is Reason.INVALID_REQUEST  # noqa: PT017  # of many
    else:
        assert base64.b64encode(data).decode() == text
