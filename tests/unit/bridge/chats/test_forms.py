import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from types import MappingProxyType

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET, ValidationError, convert
from msgspec.structs import replace

from inferd.bridge.chats.api import CHATS_API
from inferd.bridge.chats.documents import (
    chat_page,
    cursor_of,
    hit_document,
    place_of_cursor,
)
from inferd.bridge.chats.events import (
    END,
    PendingEvent,
    ReadSoFar,
    events_since,
    read_so_far,
)
from inferd.bridge.chats.failures import chat_failure_body, telling_chat_failures
from inferd.bridge.chats.question import question_of, summary_question
from inferd.bridge.chats.requests import ChangeChat, CreateChat, ImportChat
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.documents import markdown, message_document, moment
from inferd.chats.estimate import DurationEstimate
from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import (
    AnswerFailure,
    ChatSampling,
    KeptAttachment,
    KeptChat,
    KeptMessage,
    LeftOut,
    MessageDetails,
    SearchHit,
    StoredCall,
    WorkParameters,
)
from inferd.chats.storage.search import words_of
from inferd.client.frames import ClientBlocksDone
from inferd.wire.blocks import AudioBlock, BlocksRequest, ImageBlock, TextBlock
from inferd.wire.responses import (
    BlockFrame,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    UsageV2,
)
from tests.cases import each_case
from tools.documents.bridge import reference

ANSWER = KeptMessage(
    id="a",
    chat_id="c",
    parent_id="p",
    role="assistant",
    state="in_progress",
    created_us=0,
)
PROMPT = replace(ANSWER, id="p", parent_id=None, role="prompter", state="manual")
CUT = LeftOut(n_left_out=2, first_kept="m")
CALL = StoredCall("t1", "clock", {})
WORK = WorkParameters(model="gemma", sampling=ChatSampling(temperature=0.5))


def sent(so_far, message, pending=None):
    """Give the events as a reader has them, and what is read then."""
    found = []
    for line, after in events_since(so_far, message, pending):
        so_far = after
        head, data = line.decode().removesuffix("\n\n").split("\n")
        assert head == f"id: {after.event_id}"
        found.append(json.loads(data.removeprefix("data: ")))
    return found, so_far


def text_of(events, kind="token"):
    return "".join(each["text"] for each in events if each["event_type"] == kind)


@settings(max_examples=40)
@given(
    st.text(max_size=30),
    st.text(max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans())),
)
def test_readers_who_come_back_get_each_character_once(text, thinking, stops):
    stops = sorted(stops, key=lambda stop: stop[:2])
    so_far, events = ReadSoFar(), []
    for n_thinking, n_text, comes_back in stops:
        partial = replace(ANSWER, text=text[:n_text], thinking=thinking[:n_thinking])
        more, so_far = sent(so_far, partial)
        events += more
        if comes_back:  # with the id alone, maybe to another bridge
            so_far = read_so_far(so_far.event_id)
    done = replace(ANSWER, text=text, thinking=thinking, state="complete")
    more, so_far = sent(so_far, done)
    events += more
    assert text_of(events) == text
    assert text_of(events, "thinking") == thinking
    assert [each["event_type"] for each in events].count("message") == 1
    assert events[-1]["message"]["content"] == text
    assert so_far.event_id == END
    assert sent(read_so_far(END), done) == ([], read_so_far(END))


def test_an_answer_tells_where_it_waits_what_it_lacks_and_what_it_calls():
    waiting = replace(ANSWER, state="pending")
    pending = PendingEvent(queue_position=2, estimate_s=1.5)
    events, so_far = sent(ReadSoFar(), waiting, pending)
    assert events == [
        {
            "event_type": "pending",
            "queue_position": 2,
            "estimate_s": 1.5,
            "phase": "queued",
            "processed": None,
            "total": None,
        }
    ]
    assert sent(so_far, waiting, pending) == ([], so_far)
    details = MessageDetails(left_out=CUT, calls=[CALL])
    events, so_far = sent(so_far, replace(ANSWER, text="hi", details=details))
    assert [each["event_type"] for each in events] == ["context", "token", "tool_call"]
    assert so_far.event_id == "0-2-1"
    assert sent(so_far, replace(ANSWER, text="hi", details=details)) == ([], so_far)


def test_the_ends_of_calls_are_told_behind_one_that_nobody_makes():
    made = replace(CALL, id="t2", state="done", result="noon")
    waits = replace(CALL, id="t3", state="waiting")
    details = MessageDetails(calls=[CALL, made, waits])
    events, so_far = sent(ReadSoFar(), replace(ANSWER, details=details))
    told = [(each["event_type"], each["tool_call"]["id"]) for each in events]
    calls = [("tool_call", name) for name in ("t1", "t2", "t3")]
    assert told == [*calls, ("tool_result", "t2")]
    assert so_far.event_id == "0-0-3-2"
    assert sent(read_so_far("0-0-3-2"), replace(ANSWER, details=details)) == (
        [],
        so_far,
    )


@each_case(
    ("state", "failure", "code"),
    [
        ("aborted_by_worker", None, "aborted_by_worker"),
        ("timeout", AnswerFailure("deadline_exceeded", "late"), "deadline_exceeded"),
        ("cancelled", None, None),
        ("complete", None, None),
    ],
)
def test_an_answer_ends_with_its_message_or_an_error(state, failure, code):
    ended = replace(ANSWER, state=state, details=MessageDetails(failure=failure))
    [event], _ = sent(ReadSoFar(), ended)
    assert event["event_type"] == ("error" if code else "message")
    assert event.get("code") == code
    assert event["message"]["state"] == state


@each_case("event_id", ["x", "1-2", "1-2-3-4-5", "-1-2-3", "end ", "1" * 10 + "-0-0"])
def test_an_id_that_is_none_of_ours_is_refused(event_id):
    with pytest.raises(BridgeError) as caught:
        read_so_far(event_id)
    assert caught.value.param == "Last-Event-ID"


def test_a_page_has_the_places_of_its_neighbours():
    chats = [
        KeptChat(id=f"{place}", owner="o", created_us=0, modified_us=10 - place)
        for place in range(3)
    ]
    first = chat_page(chats, 2, is_after=False, is_before=False)
    assert [each.id for each in first.chats] == ["0", "1"]
    assert place_of_cursor(first.next, "after") == (9, "1")
    latest = cursor_of(replace(chats[0], modified_us=2**63 - 1))
    assert place_of_cursor(latest, "before") == (2**63 - 1, "0")
    assert first.prev is None
    last = chat_page(chats[2:], 2, is_after=True, is_before=False)
    assert (last.next, place_of_cursor(last.prev, "before")) == (None, (8, "2"))
    back = chat_page(chats, 2, is_after=False, is_before=True)
    assert [each.id for each in back.chats] == ["1", "2"]
    assert back.next
    assert back.prev
    nothing = chat_page([], 2, is_after=True, is_before=False)
    assert (nothing.next, nothing.prev) == (None, None)
    forged = (f"{2**63}:a", "9" * 20 + ":a", "-1:a", "1:\0", "1:A", "1")
    cursors = [urlsafe_b64encode(text.encode()).decode() for text in forged]
    for cursor in ("%", "ü", "YQ", "YTpi", *cursors):
        with pytest.raises(BridgeError):
            place_of_cursor(cursor, "after")


def test_times_hits_and_files_are_written_for_people():
    assert moment(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    hit = SearchHit(
        chat_id="c", message_id="m", title=None, text="a " * 300 + "Zebra", created_us=0
    )
    excerpt = hit_document(hit, words_of('horse "zebra"')).excerpt
    assert excerpt.startswith("…")
    assert excerpt.endswith("Zebra")
    chat = KeptChat(id="c", owner="o", created_us=0, modified_us=0, title="T")
    said = replace(ANSWER, text="*hi*", details=MessageDetails(work=WORK))
    text = markdown(chat, [replace(PROMPT, text="<b>"), said])
    assert text == (
        "# T\n\n## You, 1970-01-01T00:00:00.000000Z\n\n<b>\n\n"
        "## gemma, 1970-01-01T00:00:00.000000Z\n\n*hi*\n"
    )
    document = message_document(said)
    assert document.work_parameters is not None
    assert document.work_parameters.model_config.name == "gemma"


def asked(branch, work=WORK, cut=None, files=MappingProxyType({})):
    question, answer = question_of(
        branch, work, cut, files, request_id="r", max_tokens=7, deadline_ms=1
    )
    assert isinstance(question.request, BlocksRequest)
    return question.request, answer


def contents(request):
    return [each.content for each in request.messages]


def turns(request) -> Sequence[tuple[str, list[str]]]:
    return [
        (each.role, [part.text for part in each.content]) for each in request.messages
    ]


def test_a_conversation_is_asked_with_what_is_kept_of_it():
    branch = [
        replace(PROMPT, text="1"),
        replace(ANSWER, text="2"),
        replace(PROMPT, id="m", text="3"),
        replace(ANSWER, text=""),  # it was aborted before its first word
        replace(PROMPT, text="4"),
    ]
    request, _ = asked(branch)
    assert turns(request) == [
        ("user", ["1"]),
        ("assistant", ["2"]),
        ("user", ["3", "4"]),
    ]
    assert (request.model, request.temperature, request.max_tokens) == ("gemma", 0.5, 7)
    work = replace(WORK, system_prompt="Be brief.")
    cut = replace(CUT, summary="They counted.")
    request, _ = asked(branch, work, cut)
    [system, *rest] = turns(request)
    assert system[0] == "system"
    assert "Be brief." in system[1][0]
    assert "They counted." in system[1][0]
    assert rest == [("user", ["3", "4"])]
    question, _ = summary_question(
        branch[:3], WORK, "Before.", request_id="r", deadline_ms=1
    )
    told = turns(question.request)
    assert [role for role, _ in told] == ["system", "user", "assistant", "user"]
    assert told[-1][1][0] == "3"


def test_pictures_and_recordings_go_before_the_text_that_is_asked_about_them():
    picture = KeptAttachment(
        id="1", name="cat.png", media_type="image/png", n_bytes=1, digest=""
    )
    sound = replace(picture, id="2", name="a.wav", media_type="audio/wav")
    gone = replace(picture, id="3", name="gone.png")
    first = replace(PROMPT, text="", attachments=(picture,))
    said = replace(PROMPT, id="m", text="What?", attachments=(sound, gone))
    branch = [first, replace(ANSWER, text="A cat."), said]
    question, _ = question_of(
        branch,
        WORK,
        None,
        {"1": b"PNG", "2": b"WAV"},
        request_id="r",
        max_tokens=7,
        deadline_ms=1,
    )
    found = [(each.kind, each.data, each.place) for each in question.media]
    assert found == [("picture", b"PNG", "cat.png"), ("sound", b"WAV", "a.wav")]
    assert contents(question.request) == [
        [ImageBlock("1")],
        [TextBlock("A cat.")],
        [AudioBlock("2"), TextBlock("[a picture: gone.png]"), TextBlock("What?")],
    ]
    summary, _ = summary_question(branch, WORK, None, request_id="r", deadline_ms=1)
    assert not summary.media
    assert contents(summary.request)[0] == [TextBlock("[a picture: cat.png]")]
    document = message_document(said, {"2": b"WAV"})
    assert [each.data for each in document.attachments] == ["V0FW", None]
    assert "- cat.png (image/png, 1 bytes)" in markdown(
        KeptChat(id="c", owner="o", created_us=0, modified_us=0), [first]
    )


def test_frames_add_up_to_the_answer():
    _, answer = asked([replace(PROMPT, text="1")])
    for block in (
        ThinkingDelta("hm"),
        TextDelta("he"),
        TextDelta("llo\0"),
        ToolCall("t1", "clock", {}),
    ):
        for _ in answer.add(BlockFrame(id="r", block=block)):
            pass
    partial = answer.applied_to(ANSWER)
    assert (partial.text, partial.thinking) == ("hello\ufffd", "hm")
    assert partial.details == MessageDetails(calls=[replace(CALL, at=6)])
    done = ClientBlocksDone(
        id="r", usage=UsageV2(5, 3), stop_reason="end_turn", backend="gemma"
    )
    assert done.timing is UNSET
    for _ in answer.add(done):
        pass
    ended = answer.applied_to(ANSWER).details
    assert ended.finish_reason == "end_turn"
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens) == (5, 3)
    assert answer.n_tokens == 8


@each_case("fault", ChatFault)
def test_each_fault_of_the_store_is_told_with_a_status(fault):
    with pytest.raises(BridgeError) as caught, telling_chat_failures():
        raise ChatError(fault, "text", "content")
    failure = caught.value
    assert failure.status in {400, 404, 409, 429, 503}
    body = json.loads(chat_failure_body(failure))
    assert body["detail"] == "text"
    assert body["error"] == {
        "code": failure.reason.value,
        "message": "text",
        "param": "content",
    }
    assert (fault is ChatFault.LOCKED) == (failure.retry_after_s is not None)


def test_a_wait_is_estimated_by_the_answers_before():
    estimate = DurationEstimate()
    assert estimate.of(3) is None
    estimate.add(4)
    estimate.add(8)
    assert estimate.of(2) == 10.0


@each_case("text", ["a\0b", "\0", ""])
def test_a_title_that_no_database_can_store_is_refused(text):
    for kind in (CreateChat, ChangeChat, ImportChat):
        with pytest.raises(ValidationError, match="title"):
            convert({"title": text, "messages": []}, kind)
    assert convert({"title": "a\nb"}, CreateChat).title == "a\nb"


def test_a_table_that_routes_share_is_in_the_reference_once():
    heads = re.findall(r"^## .*", reference(CHATS_API), re.MULTILINE)
    assert len({*heads}) == len(heads) > 9


def test_a_reason_for_chats_has_its_status():
    assert BridgeError(Reason.CHATS_UNAVAILABLE, "x").status == 503
