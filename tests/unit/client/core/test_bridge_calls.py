"""Requests of the protocol as calls of a bridge."""

import wave
from io import BytesIO

import pytest

from inferd.client.core.bridge_calls import (
    auth_headers,
    bridge_address,
    call_of,
    foreign_answer,
    is_frame,
    recording_call,
    wav_of,
)
from inferd.client.core.failures import ClientError
from inferd.wire.requests import DescribeRequest, EmbedRequest, GenerateRequest
from tests.cases import each_case


@each_case(
    "url",
    ["http://example.org", "ftp://127.0.0.1", "http://a:b@127.0.0.1", "unix:a", "host"],
)
def test_an_address_over_which_prompts_could_be_read_is_none(url):
    with pytest.raises(ValueError, match="url: "):
        bridge_address(url)


def test_an_address_may_be_of_a_socket_or_have_a_path():
    assert bridge_address("unix:/run/b.sock").socket == "/run/b.sock"
    address = bridge_address("https://example.org/inferd/")
    assert (address.port, address.path) == (443, "/inferd")


def test_each_kind_of_request_has_its_route():
    described = call_of("infer.embed.sock", DescribeRequest(id="a"), b"{}")
    assert described.path == "/inferd/models"
    assert call_of("infer.embed.sock", EmbedRequest(id="a"), b"{}").path.endswith(
        "embed"
    )
    with pytest.raises(ClientError):
        call_of("infer.sock", GenerateRequest(id="a", messages=[]), b"{}")


def test_a_recording_goes_as_a_file_beside_its_request():
    call = recording_call(DescribeRequest(id="a1"), b"{}\n", b"RIFF\r\n")
    assert call.content_type == "multipart/form-data; boundary=inferd-a1"
    assert call.body.count(b"--inferd-a1") == 3
    assert b"\r\n\r\nRIFF\r\n\r\n--inferd-a1--" in call.body


def test_samples_are_a_file_that_keeps_them_exactly():
    samples = bytes(range(16)) * 4
    content = wav_of(samples)
    assert content.endswith(samples)
    assert int.from_bytes(content[4:8], "little") == len(content) - 8
    with pytest.raises(wave.Error, match="unknown format: 3"):  # floats
        wave.open(BytesIO(content))  # noqa: SIM115  # it raises


def test_who_asks_stands_in_one_header():
    assert auth_headers(None) == ()
    assert auth_headers("abc") == ((b"authorization", b"Bearer abc"),)
    for token in ("a b", "ä", "a\n"):
        with pytest.raises(ValueError, match="token"):
            auth_headers(token)


def test_an_answer_of_another_server_is_told_in_short():
    assert is_frame(b'{"type":"error"}')
    for other in (b"", b"<html>", b"[]", b"\xff", b'{"type":1}'):
        assert not is_frame(other)
    assert len(str(foreign_answer(404, b"x \n" * 1000))) < 300
