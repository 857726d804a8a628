"""F-69: what a model writes reaches a terminal as text, and chats are their user's alone."""

import os
import re
import stat

import pytest

from inferd.chats.estimate import DurationEstimate
from inferd.chats.records import KeptChat
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.screen.answer_view import AnswerView
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.chat.screen.rendering import LineStyle
from inferd.cli.console import CommandError
from inferd.client.core.answer import TextEvent, ThinkingEvent, ToolCallEvent
from inferd.terminal import print_styled

ESCAPES = [
    *(
        "\x1b]0;title\x07",
        "\x1b]52;c;Y21k\x07",
        "\x1b[2J\x1b[H",
        "\x1b[6n",
        "\x1bP+q\x1b\\",
    ),
    *("\x1b]8;;http://a.example\x07b\x1b]8;;\x07", "\x9b31m", "\x9d0;t\x9c", "\x1b[5i"),
    *(
        "\r",
        "\b",
        "\x7f",
        "\x00",
        "\x85",
        "\u202e",
        "\u2066",
        "\u200b",
        "\u2028",
        "\ufeff",
    ),
    *("&#x202e;", "&#x1b;[2J", "&#8238;", "\x1b[?2004l", "\x1b[99A", "\x1b[38;5;1m"),
]
PLACES = [
    "{}",
    "# {}",
    "- {}",
    "`{}`",
    "```{}\n{}\n```",
    "[{}](http://a.example/{})",
    "![{}]({})",
    "| {} |\n|---|\n| {} |",
    "<a href='{}'>{}</a>",
    "> {}",
    "[a]: {} '{}'\n\n[a]",
]
DRAWN = re.compile(r"\x1b\[(?:[0-9;]*m|[0-9]*A|J)|\r\n|\r(?=\x1b)")


def test_no_place_of_an_answer_lets_a_sequence_through(capsys):
    style = LineStyle(0)
    size = os.terminal_size((60, 24))
    for escape in ESCAPES:
        text = "\n\n".join(place.replace("{}", f"a{escape}b") for place in PLACES)
        view = AnswerView(
            Painter(print_styled, lambda: size, style), DurationEstimate()
        )
        view.add([ThinkingEvent(text=text)])
        view.add([TextEvent(text=text)])
        view.add([ToolCallEvent(id=text, name=text, arguments={text: text})])
        view.end()
        shown = DRAWN.sub("", capsys.readouterr().out)
        assert shown.replace("\n", "").isprintable(), repr(escape)
        assert "a.example" in shown


def test_what_is_drawn_has_no_sequence_but_those_of_drawing(capsys):
    for escape in ESCAPES:
        print_styled(f"\x1b[1ma\x1b[0m\r\n{escape}x\r\x1b[2A\x1b[Jb\r\n")
        shown = DRAWN.sub("", capsys.readouterr().out)
        assert shown.replace("\n", "").isprintable(), repr(escape)


def test_nobody_else_reads_a_chat_or_gets_one_written_elsewhere(tmp_path):
    chat = KeptChat(id=f"{1:032x}", owner="", created_us=1, modified_us=1)
    folder = ChatFolder(tmp_path / "state" / "chats")
    mask = os.umask(0)
    try:
        file, _ = folder.create(chat)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    file.close()
    target = tmp_path / "target"
    target.write_text("")
    (folder.path / f"{2:032x}.jsonl").symlink_to(target)
    with pytest.raises((CommandError, OSError)):
        folder.open(f"{2:032x}")
    assert [each.id for each in folder.chats()] == [chat.id]
    folder.path.chmod(0o777)
    with pytest.raises(CommandError, match="cannot be kept"):
        ChatFolder(folder.path)
