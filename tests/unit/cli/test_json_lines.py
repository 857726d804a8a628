import argparse
import io
import json

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from inferd.cli.console import CommandError
from inferd.cli.json_lines import (
    add_texts_argument,
    input_error,
    print_result,
    read_texts,
)
from inferd.client.exchange import RequestFailedError
from inferd.client.frames import ClientErrorFrame


class Stdin(io.TextIOWrapper):
    """Bytes on stdin."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))


@pytest.fixture
def piped(monkeypatch):
    """Read texts of stdin."""

    def read(*lines, arguments=()):
        monkeypatch.setattr("sys.stdin", Stdin(b"\n".join(lines)))
        return list(read_texts(arguments, "text"))

    return read


def parse(*arguments: str) -> list[str]:
    parser = argparse.ArgumentParser()
    add_texts_argument(parser, "text")
    return list(parser.parse_args(arguments).texts)


def failed(message):
    frame = ClientErrorFrame(id="r", code="invalid_request", message=message)
    return RequestFailedError(frame)


# --- in ---------------------------------------------------------------------------------


def test_arguments_are_texts_with_a_number():
    texts = list(read_texts(parse("a", "-", ""), "document"))
    assert [each.text for each in texts] == ["a", "-", ""]
    assert [each.origin for each in texts] == ["document 1", "document 2", "document 3"]
    assert [each.fields for each in texts] == [
        {"text": "a"},
        {"text": "-"},
        {"text": ""},
    ]


@pytest.mark.parametrize("arguments", [parse(), parse("-")])
def test_without_arguments_texts_are_lines_of_stdin(piped, arguments):
    [text] = piped(b'"a"', arguments=arguments)
    assert (text.text, text.origin) == ("a", "line 1")
    assert msgspec.json.encode(text.fields) == b'{"text":"a"}'


def test_an_object_keeps_its_fields_as_they_were_written(piped, capsys):
    line = b'{"n": 1.50, "text": "a", "big": 123456789012345678901234567890}'
    [text] = piped(line)
    assert text.text == "a"
    print_result({**text.fields, "score": 1})
    assert capsys.readouterr().out == (
        '{"n":1.50,"text":"a","big":123456789012345678901234567890,"score":1}\n'
    )


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        ((b"x",), ["x"]),
        ((b"", b"one text", b"", b'{"n": 1}', b'"a"'), ["one text", '{"n": 1}', '"a"']),
        ((b"42", b"true"), ["42", "true"]),
        (
            (b'"Hello," she said.', b"Gr\xc3\xbc\xc3\x9fe\r"),
            ['"Hello," she said.', "Gr\xfc\xdfe"],
        ),
    ],
)
def test_a_plain_pipe_has_a_text_in_each_line(piped, lines, texts):
    assert [each.text for each in piped(*lines)] == texts


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"text":"a"', "line 1: not JSON: "),
        (b'["a"]', "line 1: neither a string nor an object"),
        (b"caf\xe9", "line 1: not UTF-8"),
    ],
)
def test_a_first_line_that_is_neither_is_named(piped, line, complaint):
    with pytest.raises(CommandError) as caught:
        piped(line)
    assert caught.value.text.startswith(complaint)


def test_no_lines_are_no_texts(piped):
    assert piped() == []


@settings(max_examples=30)
@given(st.lists(st.text(max_size=5), max_size=5))
def test_every_text_is_read_as_it_was_written(texts):
    with pytest.MonkeyPatch.context() as patch:
        lines = [json.dumps(text) + "\r\n" for text in texts]
        patch.setattr("sys.stdin", Stdin("".join(lines).encode()))
        assert [each.text for each in read_texts([], "text")] == texts


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"a", "not JSON: "),
        (b"", "not JSON: "),
        (b'"a" "b"', "not JSON: "),
        (b'{"text":"a"', "not JSON: "),
        (b'"\xff"', "not JSON: "),
        (b'{"text":"a","news":"\xff"}', "not JSON: "),
        (b'{"text":"\\ud800"}', "not JSON: "),
        (b'{"text":"a","n":' + b"[" * 100_000, "not JSON: "),
        *[
            (line, 'neither a string nor an object with a string "text"')
            for line in (b"1", b"null", b'["a"]', b"{}", b'{"text":1}', b'{"Text":"a"}')
        ],
    ],
    ids=range(14),
)
def test_a_line_without_a_text_is_named(piped, line, complaint):
    with pytest.raises(CommandError) as caught:
        piped(b'"a"', line, b'"b"')
    assert caught.value.text.startswith(f"line 2: {complaint}")


def test_texts_before_an_invalid_line_are_yielded(monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b'"a"\nb\n'))
    texts = read_texts([], "text")
    assert next(texts).text == "a"
    with pytest.raises(CommandError):
        next(texts)


def test_a_line_without_end_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr("inferd.cli.json_lines.MAX_FRAME_BYTES", 8)
    stdin = io.BytesIO(b"x" * 100)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stdin))
    texts = read_texts([], "text")
    with pytest.raises(CommandError, match="line 1: over 8 bytes"):
        next(texts)
    assert stdin.tell() == 9


# --- out --------------------------------------------------------------------------------


def test_a_result_is_a_line(capsys):
    print_result({"text": "two\nlines", "embedding": [1.0, -0.5]})
    assert capsys.readouterr().out == '{"text":"two\\nlines","embedding":[1.0,-0.5]}\n'


def test_a_refusal_names_the_line_instead_of_its_index(piped):
    texts = piped(b'"a"', b'"b"', b'"c"')[1:]
    error = input_error(
        failed("input[1] has 600 tokens, the context 512"), "input", texts
    )
    assert error.text == "invalid_request: line 3 has 600 tokens, the context 512"


@pytest.mark.parametrize(
    "message", ["input[9] is odd", "documents[0] is odd", "so it is"]
)
def test_a_refusal_of_something_else_is_left_as_it_is(piped, message):
    error = input_error(failed(message), "input", piped(b'"a"'))
    assert error.text == f"invalid_request: {message}"
