"""What a session knows: its client, its chat, and where both are kept."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from inferd.chats.estimate import DurationEstimate
from inferd.chats.records import (
    ChatSampling,
    ContextPolicy,
    KeptAttachment,
    KeptChat,
    KeptMessage,
    OwnSettings,
)
from inferd.chats.titles import title_of
from inferd.cli.chat.conversation import Conversation, with_part
from inferd.cli.chat.history.chat_file import ChatFile
from inferd.cli.chat.history.folder import ChatFolder
from inferd.cli.chat.history.lines import AnswerPart, AttachedPath, HistoryLine
from inferd.cli.chat.history.prompts import PromptHistory
from inferd.cli.chat.screen.painter import Painter
from inferd.cli.console import CommandError
from inferd.client.core.failures import ClientError
from inferd.client.core.offers import ServedFacts
from inferd.client.library.blocking import Client

_US_PER_NS = 1000


def now_us() -> int:
    """Return the microseconds since 1970."""
    return time.time_ns() // _US_PER_NS


def new_id() -> str:
    """Make the id of a chat or a message."""
    return secrets.token_hex(16)


@dataclass
class PendingFile:
    """A picture or recording that goes with the next prompt."""

    kept: KeptAttachment
    path: Path


@dataclass
class ChatState:
    """What a session knows.

    Ownership: it has the file of its chat; ``leave`` closes it.
    """

    make_client: Callable[[], Client]
    painter: Painter
    settings: OwnSettings
    """Of a new chat."""
    folder: ChatFolder | None = None
    """``None`` where nothing is kept."""
    prompts: PromptHistory | None = None
    thinking: bool | None = None
    """Whether reasoning is asked for; ``None`` leaves it to the model."""
    pending: list[PendingFile] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Of files that go with the next prompt."""
    estimate: DurationEstimate = field(default_factory=DurationEstimate)
    served: Sequence[ServedFacts] = ()
    """The models, as the daemon told last."""
    listed: Sequence[KeptChat] = ()
    """The chats, as they were shown last, by their numbers."""
    n_used: int | None = None
    """Tokens of the context that the chat takes, if they were counted."""
    speed: float | None = None
    """Tokens a second of the last answer."""
    client: Client = field(init=False)
    conversation: Conversation = field(init=False)
    file: ChatFile | None = None
    is_ending: bool = False
    asks_again: bool = False
    """Whether the last prompt is to be answered anew."""
    draft: str = ""
    """What the next prompt begins with."""
    edited: KeptMessage | None = None
    """The prompt that the next one replaces in this branch, if it is sent."""

    def __post_init__(self) -> None:
        self.client = self.make_client()
        self.conversation = Conversation(self._new_chat())

    def reconnect(self) -> None:
        """Leave the daemon, which ends what it does for this session, and connect anew."""
        before, self.client = self.client, self.make_client()
        before.close()

    # --- the chat -----------------------------------------------------------------------

    def _new_chat(self) -> KeptChat:
        now = now_us()
        return KeptChat(
            id=new_id(),
            owner="",
            created_us=now,
            modified_us=now,
            settings=self.settings,
        )

    def begin(self) -> None:
        """Leave the chat and begin another."""
        self.leave()
        self.conversation = Conversation(self._new_chat())

    def open(self, chat_id: str) -> None:
        """Leave the chat and go on with another.

        Raises:
            CommandError: it cannot be opened.
        """
        if self.folder is None:
            raise CommandError("no chats are kept")
        if chat_id == self.conversation.chat.id:
            return
        file, conversation = self.folder.open(chat_id)
        self.leave()
        self.file, self.conversation = file, conversation

    def leave(self) -> None:
        """Close the file of the chat."""
        if self.file is not None:
            self.file.close()
        self.file, self.n_used = None, None
        self.pending.clear()
        self.texts.clear()

    def change_settings(self, settings: OwnSettings) -> None:
        """Give the chat, and those that follow it in this session, other settings."""
        self.settings = settings
        self.change(replace(self.conversation.chat, settings=settings))

    def change(self, chat: KeptChat) -> None:
        """Change the chat, and keep that."""
        self.conversation.chat = chat
        self._write(HistoryLine(chat=chat))

    def go_to(self, message_id: str | None) -> None:
        """Make a message the last one."""
        self.change(self.conversation.go_to(message_id, now_us()))

    def keep_prompt(self, prompt: KeptMessage, files: Sequence[PendingFile]) -> None:
        """Add a prompt, with which the file of a new chat begins."""
        chat = self.conversation.chat
        if chat.title is None:
            self.conversation.chat = replace(chat, title=title_of(prompt.text))
        self._create_file()
        for each in files:
            self.conversation.note_path(each.kept.id, str(each.path))
            attached = AttachedPath(id=each.kept.id, path=str(each.path))
            self._write(HistoryLine(attached=attached))
        self.keep_last(prompt)

    def _create_file(self) -> None:
        if self.file is not None or self.folder is None:
            return
        try:
            self.file, n_removed = self.folder.create(self.conversation.chat)
        except (CommandError, OSError) as error:
            self._give_up(error)
            return
        if n_removed:
            self.painter.note(f"({n_removed} oldest chats were removed for this one)")

    def _write(self, line: HistoryLine, *, waits: bool = True) -> None:
        """Add a line to the file of the chat; if that fails, go on without one.

        Args:
            line: to add.
            waits: whether to wait until the disk has it.
        """
        if self.file is None:
            return
        try:
            if waits:
                self.file.keep(line)
            else:
                self.file.add(line)
        except CommandError as error:
            self.file.close()
            self.file = None
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.folder = None
        self.painter.note(
            f"error: {error}; nothing more is kept of this session", "red"
        )

    def keep_last(self, message: KeptMessage) -> None:
        """Add a message as the last one, and keep that: both or neither."""
        self.conversation.put(message)
        chat = self.conversation.go_to(message.id, now_us())
        self._write(HistoryLine(chat=chat, message=message))

    def keep(self, message: KeptMessage) -> None:
        """Add a message or replace it, and keep that."""
        self.conversation.put(message)
        self._write(HistoryLine(message=message))

    def grow(self, answer_id: str, text: str, thinking: str) -> None:
        """Add a part of an answer, and keep that."""
        if not (text or thinking):
            return
        before = self.conversation.messages[answer_id]
        self.conversation.put(with_part(before, text, thinking))
        part = AnswerPart(id=answer_id, text=text, thinking=thinking)
        self._write(HistoryLine(part=part), waits=False)

    # --- models -------------------------------------------------------------------------

    @property
    def settings_now(self) -> OwnSettings:
        """The settings of the chat."""
        return self.conversation.chat.settings

    @property
    def model(self) -> str | None:
        """The model that the chat asks for; ``None`` for any."""
        return self.settings_now.model_config_name

    @property
    def sampling(self) -> ChatSampling:
        """How answers are sampled."""
        return self.settings_now.sampling_parameters or ChatSampling()

    @property
    def policy(self) -> ContextPolicy:
        """What becomes of turns that the context has no room for."""
        return self.settings_now.context or "omit"

    def look_up(self) -> Sequence[ServedFacts]:
        """Ask the daemon which models it serves; keep what it said last if it does not."""
        try:
            self.served = self.client.models()
        except ClientError:
            return self.served
        return self.served

    @property
    def facts(self) -> ServedFacts | None:
        """What is known of the model that answers."""
        chosen = self.model
        if chosen is None:
            answer = self.conversation.last_answer
            work = answer.details.work if answer else None
            chosen = work.model if work else None
        if chosen is None:
            able = [each for each in self.served if "generate" in each.can]
            return able[0] if able else None
        for each in self.served:
            if chosen == each.name or chosen in each.aliases:
                return each
        return None

    def tell_missing_model(self) -> None:
        """Say so where the model of a chat that was opened is not served."""
        if self.model is not None and self.served and self.facts is None:
            self.painter.note(
                f"{self.model} is not served here; /model chooses another"
            )

    def status(self) -> str:
        """Return the line below the prompt."""
        facts = self.facts
        name = self.model or (facts.name if facts else "no daemon answers")
        parts = [name]
        if facts and facts.n_ctx and self.n_used is not None:
            parts.append(f"{self.n_used:,} of {facts.n_ctx:,} tokens")
        if self.speed:
            parts.append(f"{self.speed:.1f} tokens/s")
        parts += [f"+ {each.kept.name}" for each in self.pending]
        parts += [f"+ {len(self.texts)} text files"] if self.texts else []
        return " · ".join(parts)
