"""Somebody stores a file that a browser would run if it were sent back as it is called."""

import pytest

from inferd.bridge.chats.attachments import AttachedFiles, SentAttachment, file_headers
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.records import KeptAttachment
from inferd.config.chats import ChatsSettings
from inferd.limits.bridge import MAX_MESSAGE_FILES
from tests.cases import each_case

PIXEL = "iVBORw0KGgo="
"""The beginning of a PNG file."""


def take(*sent, settings=None):
    files = AttachedFiles(settings or ChatsSettings())
    kept = files.take([SentAttachment(**each) for each in sent], "attachments")
    assert {each.id for each in kept} == files.found.keys()
    return kept


@each_case(
    ("fields", "reason"),
    [
        ({"data": "PHNjcmlwdD4=", "name": "a.png"}, Reason.INVALID_REQUEST),  # <script>
        ({"data": "PHN2Zz48L3N2Zz4=", "name": "a.svg"}, Reason.INVALID_REQUEST),
        ({"data": "JVBERi0xLjc=", "name": "a.jpeg"}, Reason.INVALID_REQUEST),  # a PDF
        ({"data": "no base64!"}, Reason.INVALID_REQUEST),
        ({"data": ""}, Reason.INVALID_REQUEST),
        ({"data": PIXEL * 2}, Reason.INVALID_REQUEST),
        ({"data": PIXEL[:-1] + "A" * 17}, Reason.CHAT_LIMIT),
    ],
)
def test_only_pictures_and_recordings_are_stored_whatever_they_are_called(
    fields, reason
):
    with pytest.raises(BridgeError) as caught:
        take(fields, settings=ChatsSettings(max_attachment_bytes=15))
    assert caught.value.reason is reason
    assert caught.value.param == "attachments[0].data"


def test_a_message_has_no_more_files_than_the_bound():
    with pytest.raises(BridgeError) as caught:
        take(*[{"data": PIXEL}] * (MAX_MESSAGE_FILES + 1))
    assert caught.value.reason is Reason.CHAT_LIMIT


def test_a_file_is_sent_by_a_type_of_the_list_and_saved_not_shown():
    [kept] = take({"data": PIXEL, "name": 'x"; filename=evil.html é\u202e.html'})
    assert isinstance(kept, KeptAttachment)
    assert kept.media_type == "image/png"
    headers = file_headers(kept)
    stated = headers["content-disposition"]
    assert stated.startswith("attachment; filename*=UTF-8''x%22%3B%20filename%3Devil")
    assert stated.isascii()
    assert '"' not in stated
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["cross-origin-resource-policy"] == "same-origin"
