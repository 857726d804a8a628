"""``inferd chat`` in a real terminal, with a real daemon, as people use it."""

import json
import re
import shlex
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import to_toml
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    DaemonProcess,
    clean_environ,
    eventually,
    generate,
    llamacpp,
    mock,
)
from tests.daemon.tmux import INFERD, Terminal, kill
from tests.documents.pages import commands
from tests.media_files import png_file

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

ROOT = Path(__file__).parents[2]
LINES = [f"- item {number} of a list that scrolls\n" for number in range(60)]
DRAWN = [
    *(
        "# Head",
        "line\n\n",
        "Some **bold** text that ",
        "goes on, so that it ",
        "wraps ",
    ),
    *("at the end of a line of 80 columns.\n\n", *LINES, "\n```python\n", "def f():\n"),
    *("    return 1\n", "```\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n\n", "The end."),
]
HOSTILE = [
    *("\x1b]0;owned\x07", "\x1b[2J", "\x1b[31m", "\u202egpj.exe ", "\r> /delete\n\n"),
    *(
        "[click](javascript:alert(1)) ",
        "&#x202e;",
        "\x9b5n",
        "<b>bold</b>",
        " The end.",
    ),
]
ENDLESS = ["word "] * 100_000


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    backends = [
        mock(name="drawn", aliases=["assistant"], tokens=DRAWN),
        mock(name="hostile", tokens=HOSTILE),
        mock(name="endless", tokens=ENDLESS, token_delay_ms=5),
        mock(name="eyes", tokens=["A cat."], vision=True),
    ]
    with daemons() as make:
        yield make({"backend": backends, "admission": {"max_active": 1}}).start()


Chat = Callable[..., Terminal]


@pytest.fixture
def chat(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Chat]:
    with ExitStack() as stack:

        def start(
            *words: str, columns: int = 80, rows: int = 24, at: Path = daemon.directory
        ) -> Terminal:
            home = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
            terminal = Terminal(tmp_path, columns, rows, {**clean_environ(), **home})
            stack.enter_context(terminal)
            where = [] if "--url" in words else ["--directory", str(at)]
            terminal.run([*INFERD, "chat", *where, *words])
            terminal.wait("/help lists the")
            terminal.wait("\n>")
            return terminal

        yield start


def files(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "state" / "inferd" / "chats").glob("*.jsonl")]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 20)])
def test_markdown_is_drawn_once_and_nothing_of_it_is_lost(chat, columns, rows):
    terminal = chat("drawn", columns=columns, rows=rows)
    terminal.say("Draw.")
    terminal.wait("The end.")
    shown = terminal.all()
    for number in range(60):
        assert len(re.findall(rf"• item {number} ", shown)) == 1
    assert shown.count("Headline") == 1
    assert " ".join(shown.split()).count("Some bold text that goes on, so that it") == 1
    assert "**" not in shown
    assert "      return 1" in shown
    assert re.search(r"a +b\n +─+\n +1 +2", shown)
    assert max(map(len, shown.splitlines())) <= columns
    terminal.say("/quit")
    assert terminal.code() == 0


def test_the_commands_of_the_document_begin_a_chat(chat):
    asked = commands("docs/chat.md")
    assert len(asked) == 5
    for command in asked:
        program, name, *words = shlex.split(command)
        assert (program, name) == ("inferd", "chat")
        terminal = chat(*words)
        terminal.keys("C-d")
        assert terminal.code() == 0


@pytest.mark.parametrize("said", ["y", ""])
def test_inferd_alone_offers_a_daemon_that_ends_with_its_chat(tmp_path, said):
    home = tmp_path / "h"
    (home / ".config" / "inferd").mkdir(parents=True)
    table = {"backend": [mock(tokens=["A cat."])], "log": {"file": False}}
    (home / ".config" / "inferd" / "config.toml").write_text(to_toml(table))
    environ = {**clean_environ(), "HOME": str(home)}
    names = [name for name in environ if name.startswith("XDG_")]
    environ = {name: environ[name] for name in environ if name not in names}
    with Terminal(tmp_path, 80, 50, environ) as terminal:
        terminal.run(INFERD)
        terminal.wait("No daemon runs here.")
        terminal.wait("[y/N]")
        terminal.say(said)
        if said:
            terminal.wait("\n>")
            terminal.say("What is it?")
            terminal.wait("A cat.")
            terminal.keys("C-d")
        assert terminal.code() == 0
        run = home / ".inferd" / "run"
        assert not [*run.glob("*.sock")]
        assert ("stopping the daemon" in terminal.all()) == bool(said)


def test_a_model_s_escapes_and_links_control_nothing(chat):
    terminal = chat("hostile")
    title = terminal.title()
    terminal.say("Try.")
    terminal.wait("The end.")
    shown = " ".join(terminal.all().split())
    assert r"\x1b]0;owned\x07\x1b[2J\x1b[31m\u202egpj.exe" in shown
    assert r"\r> /delete" in shown
    assert r"[click](javascript:alert(1)) \u202e\x9b5n<b>bold</b> The end." in shown
    assert "/help lists the commands" in shown
    assert "owned" not in terminal.title() == title


def test_ctrl_c_stops_an_answer_and_ctrl_d_leaves(chat, tmp_path):
    terminal = chat("endless")
    terminal.keys("not sent", "C-c")
    terminal.say("Go on.")
    terminal.wait("word word word")
    terminal.keys("C-c")
    terminal.wait("(stopped; /regenerate asks again)")
    terminal.keys("C-c")
    terminal.say("/model eyes")
    terminal.wait("eyes answers from here on")
    terminal.say("And now?")
    terminal.wait("A cat.")
    terminal.keys("C-d")
    assert terminal.code() == 0
    [path] = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = [json.loads(line) for line in path.read_text().splitlines()]
    states = [each["message"]["state"] for each in told if "message" in each]
    begun = ["manual", "in_progress"]
    assert states == [*begun, "cancelled", *begun, "complete"]


def test_a_crash_in_mid_answer_loses_nothing_that_was_seen(chat):
    terminal = chat("endless")
    terminal.say("Tell me.")
    terminal.wait("word word word")
    kill(terminal)
    assert terminal.code() == 137
    again = chat("--continue")
    shown = again.wait("(this answer is not whole; /regenerate asks again)")
    assert "> Tell me." in shown
    assert "word word word" in shown
    again.keys("Up")
    assert eventually(lambda: again.screen().rstrip().count("> Tell me.") == 2)


def test_a_daemon_that_goes_and_comes_back_leaves_the_session_usable(chat):
    with daemons() as make:
        backend = mock(name="endless", tokens=ENDLESS, token_delay_ms=5)
        daemon = make({"backend": [backend]}).start()
        terminal = chat("endless", at=daemon.directory)
        terminal.say("Go on.")
        terminal.wait("word word word")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        terminal.wait("(broken off)")
        terminal.wait("/regenerate asks again")
        terminal.say("Still there?")
        terminal.wait("no daemon answers")
        daemon.start()
        terminal.say("/regenerate")
        terminal.wait("> /regenerate\n\nword word")
        terminal.keys("C-c")
        terminal.wait("(stopped")


def test_a_prompt_may_have_lines_by_keys_and_by_a_paste(chat, tmp_path):
    terminal = chat("eyes")
    terminal.keys("one", "C-j", "two", "M-Enter", "three")
    terminal.paste("four\nfive\n\nsix")
    terminal.keys("Enter")
    terminal.wait("A cat.")
    [path] = files(tmp_path)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    [prompt] = [
        each["message"]["text"]
        for each in told
        if "message" in each and each["message"]["role"] == "prompter"
    ]
    assert prompt == "one\ntwo\nthreefour\nfive\n\nsix"
    kill(terminal, signal.SIGTERM)
    assert terminal.code() == 128 + signal.SIGTERM


def test_the_position_in_the_queue_is_shown_while_waiting(chat, daemon):
    with daemon.connect() as busy:
        busy.send(generate(model="endless", max_tokens=100_000))
        busy.frame()
        terminal = chat("eyes")
        terminal.say("Now?")
        terminal.wait("(queued, position 1)")
        terminal.keys("C-c")
        terminal.wait_gone("(queued, position 1)")
        terminal.wait("(stopped")


def test_no_colour_is_used_where_none_is_wanted(chat, monkeypatch):
    for value, has_colour in (("1", False), ("", True)):
        monkeypatch.setenv("NO_COLOR", value)
        terminal = chat("drawn")
        terminal.say("Draw.")
        terminal.wait("The end.")
        styled = terminal.screen(has_styles=True)
        codes = "".join(re.findall(r"\x1b\[[0-9;]*m", styled))
        assert bool(re.search(r"[\[;](?:3|9)[0-7](?:;|m)", codes)) == has_colour


def test_files_branches_and_chats_are_used_by_commands(chat, tmp_path):
    (tmp_path / "cat.png").write_bytes(png_file())
    (tmp_path / "letter.txt").write_text("Dear all")
    terminal = chat("drawn")
    terminal.say(f"/image {tmp_path}/cat.png")
    terminal.wait("drawn takes no pictures; eyes does")
    terminal.say("/model eyes")
    terminal.wait("eyes answers")
    terminal.say(f"/image {tmp_path}/cat.png")
    terminal.say(f"/file {tmp_path}/letter.txt")
    terminal.wait("letter.txt goes with the next prompt")
    terminal.say("What is it?")
    terminal.wait("A cat.")
    terminal.say("/edit")
    terminal.wait("> letter.txt:")
    terminal.keys(" Really", "Enter")
    terminal.wait("Really")
    terminal.say("/branch")
    terminal.wait("* 2  A cat.")
    [path] = files(tmp_path)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    prompts = [
        each["message"]["attachments"]
        for each in told
        if "message" in each and each["message"]["role"] == "prompter"
    ]
    assert prompts[0] == prompts[1] != []
    terminal.say("/title About a cat")
    terminal.say(f"/export {tmp_path}/a.md")
    terminal.wait("a.md:")
    assert (tmp_path / "a.md").read_text().startswith("# About a cat\n")
    terminal.say("/search dear")
    terminal.wait("About a cat: ")
    terminal.say("/delete")
    terminal.wait("deleted: About a cat")
    assert files(tmp_path) == []
    typed = tmp_path / "state" / "inferd" / "chat-prompts.jsonl"
    assert not typed.read_text()


def test_a_bridge_is_asked_in_place_of_the_sockets(chat, daemon, tmp_path):
    (tmp_path / "cat.png").write_bytes(png_file())
    with bridge_to(daemon) as bridge:
        terminal = chat("eyes", "--url", bridge.address)
        terminal.say(f"/image {tmp_path}/cat.png")
        terminal.wait("cat.png goes with the next prompt")
        terminal.say("What is it?")
        terminal.wait("A cat.")
    log = [json.loads(line) for line in daemon.log_file.read_text().splitlines()]
    asked = [each for each in log if each.get("backend") == "eyes"]
    assert asked


@pytest.mark.model
def test_a_real_model_is_chatted_with_until_its_context_is_full(chat):
    with daemons() as make:
        daemon = make({"backend": [llamacpp("embedded:chat", n_ctx=512)]}).start()
        terminal = chat("--max-tokens", "100", at=daemon.directory)
        terminal.wait("is a small sample model")
        terminal.say("Why is the sky blue?")
        terminal.wait(" of 512 tokens")
        terminal.say("/tokens")
        terminal.wait(" of 512 tokens, ")
        terminal.say(f"What does this say? {'The sky is blue. ' * 80}")
        terminal.wait("messages are left out from here on")
        terminal.wait("tokens/s")
        terminal.say("/context refuse")
        terminal.wait("(refuse)")
        terminal.say(f"And this? {'The sky is blue. ' * 80}")
        terminal.wait("error: ")
        terminal.keys("C-d")
        assert terminal.code() == 0
