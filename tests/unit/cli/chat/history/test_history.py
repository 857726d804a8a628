import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from inferd.chats.records import KeptChat, KeptMessage
from inferd.cli.chat.history import chat_file, folder, prompts
from inferd.cli.chat.history.chat_file import ChatFile
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.history.lines import (
    AnswerPart,
    AttachedPath,
    HistoryLine,
    encode_line,
    latest_chat,
    replay,
    whole_lines,
)
from inferd.cli.chat.history.prompts import PromptHistory
from inferd.cli.console import CommandError


def chat(number: int = 0, **fields: object) -> KeptChat:
    made = KeptChat(id=f"{number:032x}", owner="", created_us=1, modified_us=number)
    return replace(made, **fields)


def message(number: int, parent: int | None, **fields: object) -> KeptMessage:
    made = KeptMessage(
        id=f"{number:032x}",
        chat_id=f"{0:032x}",
        parent_id=None if parent is None else f"{parent:032x}",
        role="assistant" if number % 2 else "prompter",
        state="complete" if number % 2 else "manual",
        created_us=number,
        text=f"text {number}",
    )
    return replace(made, **fields)


LINES = [
    HistoryLine(chat=chat()),
    HistoryLine(attached=AttachedPath(id="a", path="/home/é\n")),
    HistoryLine(
        chat=chat(tail_id=f"{2:032x}", title="A title"), message=message(2, None)
    ),
    HistoryLine(
        chat=chat(tail_id=f"{3:032x}", title="A title"),
        message=message(3, 2, state="in_progress", text=""),
    ),
    HistoryLine(part=AnswerPart(id=f"{3:032x}", text="Hel\u2028", thinking="hm")),
    HistoryLine(part=AnswerPart(id=f"{3:032x}", text="lo")),
    HistoryLine(message=message(3, 2, text="Hel\u2028lo", thinking="hm")),
]
WHOLE = b"".join(map(encode_line, LINES))


@given(st.integers(0, len(WHOLE)))
def test_of_a_cut_file_only_the_last_line_is_lost(n_bytes):
    data = WHOLE[:n_bytes]
    n_lines = data.count(b"\n")
    found = replay(data)
    assert (found is None) == (n_lines == 0)
    if found is not None:
        assert replay(data[: whole_lines(data)]) == found
        assert len(found.messages) == (n_lines > 2) + (n_lines > 3)
        assert found.branch == [*found.messages.values()]
        told = "".join(each.text for each in found.messages.values())
        parts = ("text 2", n_lines > 2), ("Hel\u2028", n_lines > 4), ("lo", n_lines > 5)
        assert told == "".join(text for text, is_there in parts if is_there)


@given(st.integers(1, len(LINES) - 1), st.binary(min_size=1, max_size=9))
def test_a_damaged_line_takes_no_other_with_it(place, damage):
    lines = [*map(encode_line, LINES)]
    lines[place] = damage.replace(b"\n", b"?") + b"\n"
    found = replay(b"".join(lines))
    assert found is not None
    assert found.branch is not None
    assert latest_chat(b"".join(lines)) is not None


def test_an_answer_without_an_end_is_kept_as_far_as_it_came():
    found = replay(b"".join(map(encode_line, LINES[:-1])))
    assert found is not None
    answer = found.branch[-1]
    assert (answer.text, answer.thinking) == ("Hel\u2028lo", "hm")
    assert answer.state == "aborted_by_worker"
    assert answer.details.failure is not None
    assert found.paths == {"a": Path("/home/é\n")}
    assert found.chat.title == "A title"


def test_a_message_whose_parent_is_lost_is_left_out():
    lines = [LINES[0], LINES[3]]
    found = replay(b"".join(map(encode_line, lines)))
    assert found is not None
    assert (found.messages, found.chat.tail_id) == ({}, None)


def test_a_file_is_its_user_s_alone_and_goes_on_behind_a_torn_line(tmp_path):
    path = tmp_path / "a.jsonl"
    made = ChatFile.create(path, chat())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="open in another session"):
        ChatFile.open(path)
    made.keep(LINES[2])
    made.close()
    with path.open("ab") as file:
        file.write(encode_line(LINES[3])[:-4])
    again, found = ChatFile.open(path)
    assert [*found.messages] == [f"{2:032x}"]
    again.add(LINES[3])
    again.close()
    _, found = ChatFile.open(path)
    assert len(found.messages) == 2


def test_a_full_file_or_disk_is_told_and_tears_no_line(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    made = ChatFile.create(path, chat())
    n_bytes = path.stat().st_size
    monkeypatch.setattr(chat_file, "MAX_CHAT_BYTES", n_bytes + 1)
    with pytest.raises(CommandError, match="the most that are kept"):
        made.add(LINES[2])
    monkeypatch.undo()
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
    with pytest.raises(CommandError, match="disk is full"):
        made.add(LINES[2])
    monkeypatch.undo()
    assert path.stat().st_size == n_bytes


def test_what_is_no_chat_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(CommandError, match="no chat in it"):
        ChatFile.open(tmp_path / "a.jsonl")
    with pytest.raises(CommandError, match="deleted"):
        ChatFile.open(tmp_path / "b.jsonl")


@pytest.fixture
def kept(tmp_path) -> ChatFolder:
    return ChatFolder(tmp_path / "state" / "chats")


def add(kept: ChatFolder, number: int, *texts: str) -> None:
    file, _ = kept.create(chat(number, title=f"chat {number}"))
    for place, text in enumerate(texts):
        kept_message = message(place, place - 1 if place else None, text=text)
        file.keep(HistoryLine(message=kept_message))
    file.close()
    path = kept.path / f"{number:032x}.jsonl"
    os.utime(path, ns=(number, number))


def test_chats_are_listed_searched_opened_and_deleted(kept):
    add(kept, 1, "A red fox", "runs")
    add(kept, 2, "a RED whale", "swims")
    (kept.path / "other.jsonl").write_bytes(WHOLE)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o700
    assert [each.title for each in kept.chats()] == ["chat 2", "chat 1"]
    hits = kept.search("red")
    assert [hit.message.text for hit in hits] == ["a RED whale", "A red fox"]
    assert [hit.chat.title for hit in kept.search("red fox")] == ["chat 1"]
    assert kept.search(" ") == []
    file, found = kept.open(f"{1:032x}")
    assert len(found.messages) == 2
    file.close()
    kept.delete(f"{1:032x}")
    assert [each.title for each in kept.chats()] == ["chat 2"]
    assert b"fox" not in b"".join(path.read_bytes() for path in kept.path.iterdir())


def test_the_oldest_chats_make_room_but_none_that_is_open(kept, monkeypatch):
    monkeypatch.setattr(folder, "MAX_CHATS", 3)
    for number in (1, 2, 3):
        add(kept, number)
    held, _ = kept.open(f"{1:032x}")
    file, n_removed = kept.create(chat(4))
    assert n_removed == 1
    assert [each.modified_us for each in kept.chats()] == [4, 3, 1]
    file.close()
    held.close()
    monkeypatch.setattr(folder, "MAX_CHATS_BYTES", 1)
    assert kept.create(chat(5))[1] == 3


def test_a_directory_that_others_may_write_to_is_refused(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(CommandError, match="chats cannot be kept"):
        ChatFolder(tmp_path / "state" / "chats")


def test_prompts_are_kept_and_forgotten(tmp_path, monkeypatch):
    path = tmp_path / "prompts"
    known = PromptHistory(path)
    for text in ("one", "two\nlines", "three"):
        known.append_string(text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("ab") as file:
        file.write(b'"torn')
    assert [*PromptHistory(path).load_history_strings()] == [
        "three",
        "two\nlines",
        "one",
    ]
    known.append_string("/system a secret")
    known.append_string("//delete my file")
    assert "secret" not in path.read_text()
    known.forget(["/delete my file"])
    assert "delete" not in path.read_text()
    known.forget(["a file:\ntwo\nlines"])
    assert "two" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setattr(prompts, "MAX_FILE_BYTES", 20)
    known.append_string("four")
    assert [*PromptHistory(path).load_history_strings()] == ["four", "three"]


def test_prompts_that_cannot_be_kept_are_no_error(tmp_path):
    known = PromptHistory(tmp_path / "absent" / "prompts")
    known.append_string("one")
    known.forget(["one"])
    assert [*known.load_history_strings()] == []
