"""Chats and messages, as they are stored; pure."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from inferd.limits.bridge import (
    MAX_FILE_NAME_CHARS,
    MAX_SYSTEM_PROMPT_CHARS,
    MAX_TITLE_CHARS,
)

ChatRole = Literal["prompter", "assistant"]
ContextPolicy = Literal["omit", "summarise", "refuse"]
"""What becomes of a conversation that the context has no room for: the oldest turns are left out,
or summarised, or the answer is refused."""
CallState = Literal["told", "waiting", "running", "done", "failed", "denied"]
"""Of a call: nobody carries it out; its user is to confirm it; it runs; it has ended."""
MessageState = Literal[
    "manual",
    "pending",
    "in_progress",
    "complete",
    "aborted_by_worker",
    "cancelled",
    "timeout",
]
UNFINISHED: Final[tuple[MessageState, ...]] = ("pending", "in_progress")
"""States of answers that somebody generates."""
_REFUSED: Final = ("prompter", "refuse")
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
FileName = Annotated[
    str, Meta(max_length=MAX_FILE_NAME_CHARS, pattern=r"^[^\x00-\x1f\x7f/\\]+\Z")
]
Title = Annotated[
    str, Meta(min_length=1, max_length=MAX_TITLE_CHARS, pattern=r"^[^\x00]+\Z")
]
SystemPrompt = Annotated[str, Meta(max_length=MAX_SYSTEM_PROMPT_CHARS)]
ChosenServer = Annotated[str, Meta(min_length=1, max_length=20)]
"""A name by which a chat's owner has chosen a server of tools; it may be gone."""
ModelName = Annotated[str, Meta(min_length=1, max_length=128)]


def storable(text: str) -> str:
    """Return a text without the character with code 0, which PostgreSQL stores in none."""
    return text.replace("\0", "\ufffd")


class ChatSampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an answer is sampled; what is absent is the model's."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    max_new_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class OwnSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings that the owner of a chat gives it."""

    context: ContextPolicy | None = None
    model_config_name: ModelName | None = None
    system_prompt: SystemPrompt | None = None
    sampling_parameters: ChatSampling | None = None
    tool_servers: Annotated[list[ChosenServer], Meta(max_length=16)] | None = None
    """Whose tools its answers may call; absent: those that the operator has chosen."""


class KeptChat(Struct, frozen=True, kw_only=True):
    """A chat, without its messages."""

    id: str
    owner: str
    created_us: int
    """Microseconds since 1970."""
    modified_us: int
    title: str | None = None
    is_hidden: bool = False
    tail_id: str | None = None
    """The last message of the branch that its owner looks at."""
    settings: OwnSettings = OwnSettings()


class WorkParameters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer was asked for with."""

    model: ModelName
    sampling: ChatSampling = ChatSampling()
    system_prompt: SystemPrompt | None = None
    thinking: bool | None = None


class AnswerUsage(Struct, frozen=True, kw_only=True):
    """What an answer has cost."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    tokens_per_second: float | None = None


class AnswerFailure(Struct, frozen=True):
    """Why an answer was not completed."""

    code: str
    message: str


class LeftOut(Struct, frozen=True, kw_only=True):
    """What the model was not shown of a conversation that did not fit."""

    n_left_out: int
    """Of the oldest messages."""
    first_kept: str | None = None
    """Id of the first message that it was shown."""
    summary: str | None = None
    """In place of those messages, where its owner wanted that."""


class StoredCall(Struct, frozen=True, omit_defaults=True):
    """A call of a tool."""

    id: str
    name: str
    input: object
    at: int = 0
    """Characters of the text before it."""
    round: int = 0
    """How often the model had been asked before it, within this answer."""
    state: CallState = "told"
    result: str | None = None
    """What its server answered, or why it was not called."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in {"told", "done", "failed", "denied"}


class FilterWord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the operator's filter has said of a text."""

    of: ChatRole
    """Whose text."""
    verdict: Literal["mark", "refuse", "missing"]
    """``missing``: it has failed, and texts pass all the same."""
    label: str = ""
    reason: str = ""
    level: int | None = None


class MessageDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a message has beside its text."""

    work: WorkParameters | None = None
    """Of an answer."""
    usage: AnswerUsage | None = None
    failure: AnswerFailure | None = None
    left_out: LeftOut | None = None
    calls: list[StoredCall] = field(default_factory=list)
    finish_reason: str | None = None
    notes: list[str] = field(default_factory=list)
    """What an answer had to do without, for people."""
    filter_words: list[FilterWord] = field(default_factory=list)
    """Of an answer: on its prompt, and on itself."""
    has_passed: bool = False
    """Whether the filter has read the prompt of an answer, and all before it, and let them pass."""


class KeptAttachment(Struct, frozen=True, kw_only=True):
    """A picture or a recording of a message, without its bytes."""

    id: str
    name: str
    media_type: str
    n_bytes: int
    digest: str
    """SHA-256 of its bytes, in hexadecimal digits."""


class KeptMessage(Struct, frozen=True, kw_only=True):
    """A message of a chat."""

    id: str
    chat_id: str
    parent_id: str | None
    role: ChatRole
    state: MessageState
    created_us: int
    text: str = ""
    thinking: str = ""
    details: MessageDetails = MessageDetails()
    attachments: tuple[KeptAttachment, ...] = ()

    @property
    def has_refused_prompt(self) -> bool:
        """Whether it is an answer whose prompt the filter has refused."""
        words = self.details.filter_words
        return any((word.of, word.verdict) == _REFUSED for word in words)

    @property
    def words(self) -> str:
        """Its text, or the names of its files where it has none."""
        return self.text or " ".join(each.name for each in self.attachments)

    @property
    def is_unfinished(self) -> bool:
        """Whether somebody generates it."""
        return self.state in UNFINISHED

    def as_stopped(self) -> "KeptMessage":
        """Return it as an answer that somebody has stopped, with what there is of it."""
        details = replace(self.details, failure=None)
        return replace(self, state="cancelled", details=details)


class SearchHit(Struct, frozen=True, kw_only=True):
    """A message that has the words of a search."""

    chat_id: str
    message_id: str
    title: str | None
    text: str
    """All of it."""
    created_us: int
