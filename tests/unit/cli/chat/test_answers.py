import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

import msgspec
import pytest
from msgspec.structs import replace

from inferd.chats.records import ContextPolicy, KeptMessage, OwnSettings
from inferd.cli.chat.commands import catalogue
from inferd.cli.chat.commands.parsing import CommandLine
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.opening import open_last
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.chat.screen.rendering import LineStyle
from inferd.cli.chat.session import ChatSession
from inferd.cli.chat.state import ChatState
from inferd.client.core.answer import Event, FinalAnswer, TextEvent
from inferd.client.core.failures import ConnectionLostError, failure_of
from inferd.client.core.offers import ServedFacts
from inferd.client.frames import ClientErrorFrame
from inferd.wire.responses import UsageV2

SIZE = os.terminal_size((70, 20))
MODEL = ServedFacts(
    name="a", aliases=(), state="ready", can=frozenset(["generate"]), n_ctx=100
)


def overflow() -> Exception:
    fields = {"tokens_over": 20, "n_ctx": 100, "prompt_tokens": 120}
    frame = {"id": "1", "type": "error", "code": "invalid_request", "message": "long"}
    return failure_of(msgspec.convert({**frame, **fields}, ClientErrorFrame))


class Stream:
    """An answer: parts of a text, an error among them or not."""

    def __init__(self, *parts: str | Exception, stop_reason: str = "end_turn") -> None:
        self._parts = parts
        self._reason = stop_reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> Iterator[Event]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield TextEvent(text=part)

    def final(self) -> FinalAnswer:
        return FinalAnswer(
            text="",
            thinking="",
            tool_calls=(),
            stop_reason=self._reason,
            usage=UsageV2(input_tokens=90, output_tokens=10),
            model="a",
        )

    def cancel(self) -> bool:
        return True


class Client:
    """Has the answers that it is given, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Stream] = []
        self.asked: list[tuple[list[Any], dict[str, Any]]] = []

    def stream(self, messages: list[Any], **options: Any) -> Stream:
        self.asked.append((messages, options))
        return self.answers.pop(0)

    def models(self) -> list[ServedFacts]:
        return [MODEL]

    def close(self) -> None:
        pass


class Chatting:
    """A session whose prompts are given, and whose screen is one text."""

    def __init__(self, folder: ChatFolder) -> None:
        self.client = Client()
        self._written: list[str] = []
        style = LineStyle(0, has_colour=False, has_styles=False)
        self.state = ChatState(
            make_client=lambda: self.client,  # type: ignore[arg-type,return-value]
            painter=Painter(self._written.append, lambda: SIZE, style),
            settings=OwnSettings(model_config_name="a"),
            folder=folder,
        )
        self.state.served = [MODEL]

    def say(self, *prompts: str) -> str:
        """Say something; return what is written then."""
        self._written.clear()
        said = iter(prompts)
        ChatSession(self.state, lambda _: next(said, None)).run()
        return " ".join("".join(self._written).split())

    def answer(self, *parts: str | Exception, **how: Any) -> None:
        self.client.answers.append(Stream(*parts, **how))

    @property
    def last(self) -> KeptMessage:
        return self.state.conversation.branch[-1]

    def texts_asked(self, place: int = -1) -> list[tuple[str, str]]:
        messages, _ = self.client.asked[place]
        return [(each.role, each.content[0].text) for each in messages]


@pytest.fixture
def chatting(tmp_path) -> Iterator[Chatting]:
    made = Chatting(ChatFolder(tmp_path / "state" / "chats"))
    yield made
    made.state.leave()


def filled(chatting: Chatting, policy: ContextPolicy) -> None:
    """Have two turns, of which the context has no room for a third."""
    settings = replace(chatting.state.settings_now, context=policy)
    chatting.state.change_settings(settings)
    for _ in range(2):
        chatting.answer("answer " * 8)
    chatting.say("one " * 8, "two " * 8)
    chatting.answer(overflow())


def test_the_oldest_turns_are_left_out_where_all_do_not_fit(chatting):
    filled(chatting, "omit")
    chatting.answer("It ", "fits.")
    shown = chatting.say("three")
    assert "the oldest 2 messages are left out from here on" in shown
    assert shown.endswith("It fits.")
    asked = [text for _, text in chatting.texts_asked()]
    assert asked == ["two " * 8, "answer " * 8, "three"]
    assert chatting.last.details.left_out is not None
    assert chatting.last.details.left_out.n_left_out == 2
    chatting.answer("Again.")
    chatting.say("four")
    assert chatting.texts_asked()[0][1] == "two " * 8


def test_the_oldest_turns_are_summarised_where_that_is_wanted(chatting):
    filled(chatting, "summarise")
    chatting.answer("They ", "counted.")
    chatting.client.answers[-1].final = lambda: replace(
        Stream().final(), text="They counted."
    )
    chatting.answer("Yes.")
    assert "2 messages are summarised" in chatting.say("three")
    role, text = chatting.texts_asked()[0]
    assert role == "system"
    assert "They counted." in text
    assert "They counted." not in chatting.last.text


def test_a_prompt_that_does_not_fit_is_refused_where_that_is_wanted(chatting):
    filled(chatting, "refuse")
    shown = chatting.say("three")
    assert "error: invalid_request: long" in shown
    assert "/context chooses" in shown
    assert len(chatting.client.asked) == 3
    chatting.answer("Short.")
    chatting.say("four")
    assert [text for _, text in chatting.texts_asked()][-1] == "four"
    assert ("user", "three") not in chatting.texts_asked()


def test_an_answer_that_breaks_off_keeps_its_text_and_can_be_asked_again(chatting):
    chatting.answer("Half an", ConnectionLostError("the daemon has gone"))
    shown = chatting.say("Tell me.")
    assert "Half an (broken off) error: the daemon has gone /regenerate" in shown
    assert (chatting.last.text, chatting.last.state) == ("Half an", "aborted_by_worker")
    chatting.answer("A whole one.")
    chatting.say("/regenerate")
    assert chatting.texts_asked() == [("user", "Tell me.")]
    assert chatting.last.text == "A whole one."
    assert len(chatting.state.conversation.tails()) == 2


def test_why_an_answer_ends_early_is_told(chatting):
    chatting.answer("Cut", stop_reason="max_tokens")
    assert chatting.say("one").endswith(
        "(cut: the context is full; the next prompt makes room)"
    )
    chatting.answer("Stopped", stop_reason="cancelled")
    assert "(stopped; /regenerate" in chatting.say("two")
    assert chatting.last.state == "cancelled"


def test_a_prompt_that_was_changed_leaves_the_old_one_as_a_branch(chatting):
    chatting.answer("First.")
    chatting.answer("Second.")
    chatting.say("one", "/edit", "other")
    assert chatting.texts_asked() == [("user", "other")]
    chatting.say("/edit", "")
    assert chatting.last.text == "Second."
    shown = chatting.say("/branch", "/branch 1")
    assert "* 2 Second." in shown
    assert shown.endswith("> one First.")


def test_a_disk_that_takes_no_more_ends_the_keeping_and_not_the_chat(
    chatting, monkeypatch
):
    chatting.answer("First.")
    chatting.say("one")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    chatting.answer("Second.")
    shown = chatting.say("two")
    monkeypatch.undo()
    assert "No space left on device; nothing more is kept" in shown
    assert shown.endswith("Second.")


def test_an_opened_chat_is_what_was_said(chatting):
    chatting.answer("**First**.")
    chatting.say("one", "/title The first", "/new")
    chatting.answer("Else.")
    chatting.say("else")
    shown = chatting.say("/chats", "/open 2")
    assert "The first" in shown
    assert shown.endswith("> one First.")
    assert "error: 7: there are 2" in chatting.say("/open 7")


def test_the_chat_to_go_on_with_is_the_last_that_nobody_has_open(chatting):
    assert not open_last(Chatting(chatting.state.folder).state)
    chatting.answer("First.")
    chatting.answer("Second.")
    chatting.say("one", "/new", "two")
    other = Chatting(chatting.state.folder)
    assert open_last(other.state)
    assert other.last.text == "First."
    other.state.leave()


def test_settings_are_changed_by_commands(chatting):
    chatting.say("/system Be brief.", "/context refuse", "/model a")
    chatting.answer("Yes.")
    chatting.say("one")
    assert chatting.texts_asked()[0] == ("system", "Be brief.")
    shown = chatting.say("/system", "/system -", "/system", "/thinking", "/thinking on")
    assert "Be brief. the system message is removed there is no system message" in shown
    assert "error: a does not reason" in shown
    assert "error: b: no such model; there are: a" in chatting.say("/model b")


def test_a_command_that_is_interrupted_ends_alone(chatting, monkeypatch):
    def interrupted(_: ChatState, line: CommandLine) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inferd.cli.chat.session.run", interrupted)
    assert chatting.say("/search a") == "(stopped)"
    with closing(chatting.client):
        assert catalogue.run is not interrupted
