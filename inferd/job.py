"""Work for a backend: every choice made, nothing optional left.

A job is what ``resolve`` makes of a request and what travels to a worker.
"""

from typing import Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from inferd.limits import PLAIN_CHARS, PLAIN_TURNS

PIXEL_BYTES: Final = 3
"""Red, green and blue."""
SAMPLE_BYTES: Final = 4
"""A 32-bit float."""
NOBODY: Final = -1
"""No user: whose jobs the daemon's own are."""
CacheUse = Literal["auto", "off", "discard"]
"""What to do with prompts that are kept: reuse and keep them, neither, or reuse alone."""


class Media(Struct, frozen=True, kw_only=True):
    """Pixels or samples that a job comes with; the bytes are behind a descriptor of its own.

    Descriptors go along with a job, in the order of its media.
    """

    kind: Literal["image", "audio"]
    id: str
    """As the client calls it."""
    n_bytes: int
    """Of RGB octets, ``width * height * 3``, or of samples, little-endian 32-bit floats of
    one channel."""
    width: int = 0
    """Of an image, in pixels."""
    height: int = 0
    sample_rate: int = 0
    """Of sound, samples a second."""
    is_open: bool = False
    """Whether more of it may come while the job runs."""


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen.

    ``None`` stands for what the model recommends, else for the wire's default.
    """

    temperature: float | None
    """0 to 2; 0 takes the likeliest token."""
    top_p: float | None
    """Above 0, up to 1."""
    top_k: int | None
    """0 keeps all tokens."""
    seed: int
    """0 to 2**32 - 2."""
    min_p: float | None = None
    """0 to 1; 0 keeps all tokens."""
    repeat_penalty: float = 1.0
    """Above 0, up to 2; 1 for none."""
    presence_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    frequency_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    logit_bias: dict[int, float] = {}
    """Token id to what is added to its score."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    name: str
    arguments: str
    """JSON; an object, unless a client made it up."""


class Turn(Struct, frozen=True):
    """Somebody's part of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    """Of the assistant, after its text."""
    call_id: str = ""
    """Of a tool: the call that it answers."""
    name: str = ""
    """Of a tool: its own, if the conversation tells; empty if not."""


class Tool(Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str
    input_schema: str
    """JSON Schema of its arguments, an object's."""


class Structure(Struct, frozen=True, kw_only=True):
    """What the text of an answer must look like, held to while it is written."""

    kind: Literal["json_schema", "regex", "gbnf", "lark"]
    source: str
    """The schema as JSON, the pattern, or the grammar with its ``root`` or ``start``."""
    in_v1: bool = False
    """Whether it came as ``grammar`` of a v1 request."""

    @property
    def field(self) -> str:
        """Where the client wrote it."""
        part = {"json_schema": "schema", "regex": "pattern"}.get(self.kind, "grammar")
        return "grammar" if self.in_v1 else f"response_format.{part}"


class ToolChoice(Struct, frozen=True):
    """Whether the model calls tools."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool to call, if it is named."""

    @property
    def is_forced(self) -> bool:
        """Whether an answer has to hold a call."""
        return self.kind in ("required", "named")


class Written(Struct, frozen=True, kw_only=True):
    """What was made of a job's messages, tools and structure before a worker has it."""

    pieces: tuple[str, ...]
    """The prompt, cut where that keeps a client's text from being a special token."""
    open_thought: str = ""
    """The marker of the thought that the prompt ends inside, if any."""
    grammar: str = ""
    """What the answer is held to, in llguidance's terms: it compiled within all bounds.
    Empty where the answer is held to nothing."""


class GenerateJob(Struct, frozen=True, kw_only=True, tag="generate"):
    """One answer to write."""

    owner: int = NOBODY
    """The user who asks: what is kept of a job is for jobs of the same user alone.

    Below ``NOBODY`` each is a stranger of whom the kernel knows no uid.
    """
    turns: list[Turn]
    """The conversation, oldest first."""
    content: Raw | UnsetType = UNSET
    """The turns as msgpack, where another process has read them: what stands in ``turns``
    is then a short list that says as much of calls. The worker has the turns."""
    media: tuple[Media, ...] = ()
    """What stands in it besides text, in its order."""
    marker: str = ""
    """Stands in the text of turns for each of the media; drawn so that nobody else can have
    written it."""
    cache: CacheUse = "auto"
    """What to do with what is kept of earlier jobs, and with this one."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    thinks: bool = False
    """Whether a reasoning trace is wanted."""
    structure: Structure | None = None
    max_tokens: int
    min_tokens: int = 0
    """Tokens before which the model cannot end its turn."""
    sampling: Sampling
    stops: tuple[str, ...] = ()
    """Texts that end the answer; found by the daemon, which drops the job then."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the answer."""
    n_alternatives: int = 0
    """Log probabilities wanted for each token; 0 for none at all."""
    prefill_only: bool = False
    """Read the prompt and write nothing."""
    wants_progress: bool = False
    """Whether to tell how far the prompt is."""
    written: Written | None = None
    """What was made of it, if that was done already."""

    @property
    def is_plain(self) -> bool:
        """Whether its prompt is so small that a worker writes it at once, at any cost.

        It has no tools, no calls, no structure, few turns, and little text.
        """
        return (
            self.structure is None
            and self.content is UNSET
            and not self.tools
            and len(self.turns) <= PLAIN_TURNS
            and not any(turn.calls or turn.role == "tool" for turn in self.turns)
            and sum(len(turn.text) for turn in self.turns) <= PLAIN_CHARS
        )

    @property
    def may_call(self) -> bool:
        """Whether what looks like a call in the answer is one."""
        knows_calls = bool(self.tools) or any(turn.calls for turn in self.turns)
        return knows_calls and self.tool_choice.kind != "none"

    @property
    def is_structured(self) -> bool:
        """Whether the answer is held to a grammar while it is written."""
        return self.structure is not None or self.tool_choice.is_forced

    @property
    def has_structured_text(self) -> bool:
        """Whether text, if there is any, is held to a structure."""
        return self.structure is not None and not self.tool_choice.is_forced

    @property
    def tells_structure(self) -> bool:
        """Whether its end says if the structure is closed: where anything is written."""
        return self.is_structured and self.max_tokens > 0 and not self.prefill_only


class EmbedJob(Struct, frozen=True, kw_only=True, tag="embed"):
    """Texts to turn into vectors."""

    texts: list[str]
    content: Raw | UnsetType = UNSET
    """The texts as msgpack, as with ``GenerateJob``: ``texts`` has as many empty ones."""
    dimensions: int | None
    """Leading numbers to keep; ``None`` for all."""
    task: str | None


class RerankJob(Struct, frozen=True, kw_only=True, tag="rerank"):
    """Documents to score against a query."""

    query: str
    documents: list[str]


Timestamps = Literal["segment", "word"]
"""What the pieces of a transcription are, each with its times."""


class TranscribeJob(Struct, frozen=True, kw_only=True, tag="transcribe"):
    """Speech to write down."""

    owner: int = NOBODY
    """The user who asks."""
    audio: Media
    prompt: str = ""
    """Words that may come up, and the style to write in."""
    language: str | None = None
    """Its code, as whisper has them; ``None`` to find out."""
    translates: bool = False
    """Whether to write it in English."""
    timestamps: Timestamps = "segment"
    temperature: float | None = None
    """0 to 2, of the first attempt; ``None`` for the library's own."""
    max_tokens: int | None = None
    """Of the whole text; ``None`` for as many as there are."""
    wants_partials: bool = False
    """Whether to tell what is heard and may still change."""


Job = GenerateJob | EmbedJob | RerankJob | TranscribeJob


def compiles(job: Job) -> bool:
    """Tell whether a worker compiles something to prepare a job, which may take a second.

    It does so beside all others, and one such job is prepared at a time.
    """
    if not isinstance(job, GenerateJob) or job.written is None:
        return False
    return bool(job.written.grammar)


def media_of(job: Job) -> tuple[Media, ...]:
    """Give what a job comes with besides text, in the order of its descriptors."""
    match job:
        case GenerateJob(media=media):
            return media
        case TranscribeJob(audio=audio):
            return (audio,)
        case _:
            return ()
