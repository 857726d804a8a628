import json
import math

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    Exchange,
    ProtocolError,
    RequestFailedError,
    check_sound,
    embeddings_of,
    with_options,
)
from inferd.client.frames import ClientDoneFrame, ClientErrorFrame
from inferd.client.surfaces import BLOCKS, EMBED, TEXT
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    ImageAttachment,
    Message,
)
from inferd.wire.codec import (
    decode_aside,
    decode_embed,
    decode_generate,
    encode,
)
from inferd.wire.requests import (
    CancelLine,
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
)
from inferd.wire.responses import EmbeddingsFrame, EncodeUsage, TokenFrame, Usage
from inferd.wire.speech import AppendLine
from tests.cases import each_case
from tests.unit.strategies import chunked

REQUEST = GenerateRequest(id="r", messages=[ChatMessage("user", "hi")])
DONE = ClientDoneFrame(
    id="r", content="", usage=Usage(1, 1), stop_reason="end", backend="mock"
)
REFUSED = ClientErrorFrame(id="r", code="queue_full", message="queue full")
EMBEDDED = EmbeddingsFrame(
    id="r",
    embeddings=Raw(b"[[1,2.5],[-3e-2,0]]"),
    dimensions=2,
    model="m",
    usage=EncodeUsage(2),
    backend="mock",
)
TERMINALS = st.sampled_from([DONE, REFUSED])


def started(request=REQUEST):
    exchange = Exchange(TEXT)
    exchange.start(request)
    return exchange


def token(text, request_id="r"):
    return TokenFrame(id=request_id, content=text)


def lines(*frames):
    return b"".join(map(encode, frames))


def take_all(exchange, data):
    """Feed bytes and take the frames that are whole, error frames as well."""
    exchange.feed(data)
    frames = []
    try:
        while (frame := exchange.next_frame()) is not None:
            frames.append(frame)
    except RequestFailedError as error:
        frames.append(error.frame)
    return frames


def test_a_request_is_sent_as_one_line():
    exchange = Exchange(TEXT)
    assert exchange.is_done
    data = exchange.start(REQUEST)
    assert data.endswith(b"\n")
    assert decode_generate(data) == REQUEST
    assert not exchange.is_done


@settings(max_examples=30)
@given(st.lists(st.text(max_size=4).map(token), max_size=4), TERMINALS, st.data())
def test_any_chunking_gives_the_same_frames(tokens, terminal, data):
    exchange = started()
    received = []
    for chunk in data.draw(chunked(lines(*tokens, terminal))):
        if chunk:
            assert not exchange.is_done
            received += take_all(exchange, chunk)
    assert received == [*tokens, terminal]
    assert exchange.is_done


def test_an_exchange_speaks_as_its_surface_does():
    request = EmbedRequest(id="r", input=["a", "b"])
    exchange = Exchange(EMBED)
    assert decode_embed(exchange.start(request)) == request
    assert take_all(exchange, lines(EMBEDDED)) == [EMBEDDED]
    assert exchange.is_done


def test_the_next_request_may_follow_on_the_same_connection():
    exchange = started()
    assert take_all(exchange, lines(DONE)) == [DONE]
    exchange.start(REQUEST)
    assert take_all(exchange, lines(token("a"))) == [token("a")]
    assert not exchange.is_done


def test_one_request_at_a_time():
    exchange = started()
    with pytest.raises(ClientError, match="not complete"):
        exchange.start(REQUEST)
    assert take_all(exchange, lines(DONE)) == [DONE]


@pytest.mark.parametrize("sent", [b"", lines(token("a")), b'{"type":"done"'])
def test_an_end_before_the_terminal_frame_is_a_lost_connection(sent):
    exchange = started()
    if sent:
        take_all(exchange, sent)
    with pytest.raises(ConnectionLostError):
        exchange.feed(b"")


def test_frames_before_an_error_frame_are_yielded_first():
    exchange = started()
    exchange.feed(lines(token("a"), REFUSED))
    assert exchange.next_frame() == token("a")
    with pytest.raises(RequestFailedError, match="queue full"):
        exchange.next_frame()
    assert exchange.is_done


def test_an_error_about_the_connection_ends_any_request():
    refusal = ClientErrorFrame(id="", code="frame_too_large", message="too large")
    exchange = started()
    assert take_all(exchange, lines(refusal)) == [refusal]
    assert exchange.is_done


def test_an_error_with_an_unknown_code_ends_the_request():
    exchange = started()
    [failure] = take_all(
        exchange, b'{"type":"error","id":"r","code":"news","message":"m"}\n'
    )
    assert failure.code == "news"
    assert exchange.is_done


def test_a_frame_of_an_unknown_kind_is_skipped():
    news = b'{"type":"news","id":"r"}\n'
    assert take_all(started(), news + lines(token("a")) + news) == [token("a")]


@each_case(
    "sent",
    [
        lines(token("a", "another")),
        lines(token("a", "")),
        lines(ClientErrorFrame(id="another", code="internal", message="m")),
        lines(DONE, token("late")),
        lines(DONE, DONE),
        *(b"\n", b"null\n", b'{"type":"status","id":"r"}\n', b'{"type":"token"}\n'),
    ],
)
def test_what_is_no_answer_to_us_is_refused(sent):
    with pytest.raises(ProtocolError):
        take_all(started(), sent)


@pytest.mark.parametrize("request_id", ["", "r"])
def test_an_answer_without_a_request_is_refused(request_id):
    error = ClientErrorFrame(id=request_id, code="queue_full", message="queue full")
    with pytest.raises(
        ProtocolError, match=f"'{request_id}', which is not in progress"
    ):
        take_all(Exchange(TEXT), lines(error))


def test_a_line_without_end_is_refused():
    exchange = started()
    exchange._splitter._max_frame_bytes = 8
    with pytest.raises(ProtocolError, match="exceeds 8 byte cap"):
        take_all(exchange, b'{"type":"t')


def test_a_request_over_the_cap_leaves_the_connection_as_it_was(monkeypatch):
    exchange = Exchange(TEXT)
    with monkeypatch.context() as patch:
        patch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", 8)
        with pytest.raises(ClientError):
            exchange.start(REQUEST)
    assert exchange.is_done
    exchange.start(REQUEST)


def test_a_request_that_is_no_text_leaves_the_connection_as_it_was():
    exchange = Exchange(TEXT)
    with pytest.raises(ClientError, match="not valid UTF-8"):
        exchange.start(GenerateRequest(messages=[ChatMessage("user", "\udcff")]))
    assert exchange.is_done


NO_NUMBERS = (math.nan, math.inf, -math.inf)


@each_case("value", NO_NUMBERS)
@each_case("field", ["temperature", "top_p"])
def test_a_number_that_json_has_not_is_refused_by_name(field, value):
    exchange = Exchange(TEXT)
    request = GenerateRequest(messages=REQUEST.messages, **{field: value})
    with pytest.raises(ClientError, match=rf"^{field} {value} is not finite$"):
        exchange.start(request)
    assert exchange.is_done


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_bias_that_json_has_not_is_refused_by_its_token(value):
    biases = {"3": 1.5, "7": value}
    request = BlocksRequest(messages=[], min_p=0.5, logit_bias=biases)
    with pytest.raises(ClientError, match=rf"^logit_bias\[7\] {value} is not finite$"):
        Exchange(BLOCKS).start(request)


def test_the_text_of_a_failed_request_has_code_and_message():
    error = RequestFailedError(REFUSED)
    assert (error.code, error.frame) == ("queue_full", REFUSED)
    assert str(error) == "queue_full: queue full"


def test_a_message_that_begins_with_its_code_does_not_have_it_twice():
    message = "invalid request: top_k 0 not in [1, 9]"
    frame = ClientErrorFrame(id="r", code="invalid_request", message=message)
    assert str(RequestFailedError(frame)) == message


# --- cancelling -------------------------------------------------------------------------


def test_the_request_under_way_can_be_cancelled_and_still_ends():
    exchange = started()
    line = exchange.cancel("r")
    assert line is not None
    assert decode_aside(line, takes_appends=False) == CancelLine(id="r")
    assert not exchange.is_done
    assert take_all(exchange, lines(DONE)) == [DONE]


def test_a_request_that_is_not_under_way_is_not_cancelled():
    exchange = Exchange(TEXT)
    assert exchange.cancel("r") is None
    exchange.start(REQUEST)
    assert exchange.cancel("another") is None
    take_all(exchange, lines(DONE))
    assert exchange.cancel("r") is None


# --- embeddings -------------------------------------------------------------------------


def test_embeddings_are_lists_of_numbers():
    assert embeddings_of(EMBEDDED) == [[1.0, 2.5], [-0.03, 0.0]]


def test_embeddings_that_are_none_are_refused():
    exchange = Exchange(EMBED)
    exchange.start(EmbedRequest(id="r", input=["a"]))
    [frame] = take_all(exchange, lines(EMBEDDED).replace(b"2.5", b'"2.5"'))
    with pytest.raises(ProtocolError, match="embeddings"):
        embeddings_of(frame)


# --- sound ------------------------------------------------------------------------------


def spoken(*, is_open=True, request_id="r"):
    return BlocksRequest(
        id=request_id,
        messages=[Message("user", [AudioBlock("a")])],
        attachments=[
            ImageAttachment(id="i", width=1, height=1, bytes="AAAA"),
            AudioAttachment(id="a", sample_rate=16_000, open=is_open),
        ],
    )


def test_audio_is_appended_to_the_open_attachment():
    exchange = Exchange(BLOCKS)
    exchange.start(spoken())
    more, end = exchange.append(b"\0\1\2\3"), exchange.append(b"", is_last=True)
    assert msgspec.json.decode(more, type=AppendLine) == AppendLine(
        id="r", attachment_id="a", bytes="AAECAw=="
    )
    assert msgspec.json.decode(end, type=AppendLine) == AppendLine(
        id="r", attachment_id="a", end=True
    )


def test_nothing_is_added_after_the_end():
    exchange = Exchange(BLOCKS)
    exchange.start(spoken())
    exchange.append(b"", is_last=True)
    with pytest.raises(ClientError, match="open attachment"):
        exchange.append(b"")


@pytest.mark.parametrize("request_", [None, spoken(is_open=False)])
def test_nothing_is_added_where_nothing_is_open(request_):
    exchange = Exchange(BLOCKS)
    if request_ is not None:
        exchange.start(request_)
    with pytest.raises(ClientError, match="open attachment"):
        exchange.append(b"\0" * 4)


def test_audio_and_an_open_attachment_require_each_other():
    check_sound(spoken(), is_given=True)
    check_sound(spoken(is_open=False), is_given=False)
    check_sound(REQUEST, is_given=False)
    with pytest.raises(ClientError, match="'a' is open, but no audio is given"):
        check_sound(spoken(), is_given=False)
    for closed in (spoken(is_open=False), REQUEST):
        with pytest.raises(ClientError, match="no attachment of the request is open"):
            check_sound(closed, is_given=True)


def test_an_option_is_set_if_it_is_given_and_else_left_as_it_is():
    request = EmbedRequest(id="r", input=["a"], model="own")
    assert with_options(request, None, None) is request
    assert with_options(request, "other", None).model == "other"
    named = with_options(request, None, "ann")
    assert (named.model, named.principal) == ("own", "ann")
    assert (request.model, request.principal) == ("own", None)


@pytest.mark.parametrize("principal", [None, "ann"])
def test_a_cancel_and_an_append_name_the_principal_of_their_request(principal):
    exchange = Exchange(BLOCKS)
    sound = AudioAttachment("s", 16_000, open=True)
    request = BlocksRequest(
        id="r", messages=[], attachments=[sound], principal=principal
    )
    exchange.start(request)
    lines = [exchange.append(b"abcd"), exchange.cancel("r") or b""]
    named = {"principal": principal} if principal else {}
    for line in map(json.loads, lines):
        assert {k: v for k, v in line.items() if k == "principal"} == named
