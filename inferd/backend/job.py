"""Jobs for a backend: resolved requests, with no choice left open.

``resolve`` makes a job of a request, and the job is sent to a worker.
"""

from typing import Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from inferd.limits.prompts import PLAIN_CHARS, PLAIN_TURNS

PIXEL_BYTES: Final = 3
"""Red, green and blue."""
SAMPLE_BYTES: Final = 4
"""A 32-bit float."""
NO_UID: Final = -1
"""No user: the owner of the daemon's own jobs."""
CacheUse = Literal["auto", "off", "discard"]
"""Use of the prompt cache: reuse and keep prompts, neither, or reuse alone."""


class Media(Struct, frozen=True, kw_only=True):
    """Pixels or samples of a job; the bytes are in a file of their own.

    The files' descriptors are sent with the job, in the order of its media.
    """

    kind: Literal["image", "audio"]
    id: str
    """The client's name for it."""
    n_bytes: int
    """Bytes of RGB pixels, ``width * height * 3``, or of samples, little-endian 32-bit
    floats of one channel."""
    width: int = 0
    """Of an image, in pixels."""
    height: int = 0
    sample_rate: int = 0
    """Of audio, in Hz."""
    is_open: bool = False
    """Whether more of it may come while the job runs."""


class Sampling(Struct, frozen=True, kw_only=True):
    """Parameters for the choice of the next token.

    ``None`` stands for the model's recommendation, else for the protocol's default.
    """

    temperature: float | None
    """0 to 2; 0 takes the most probable token."""
    top_p: float | None
    """Above 0, up to 1."""
    top_k: int | None
    """0 keeps all tokens."""
    seed: int
    """0 to 2**32 - 2."""
    seed_given: bool = False
    """Whether the request has it; else it was drawn."""
    min_p: float | None = None
    """0 to 1; 0 keeps all tokens."""
    repeat_penalty: float = 1.0
    """Above 0, up to 2; 1 for none."""
    presence_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    frequency_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    logit_bias: dict[int, float] = {}
    """Token id to the number that is added to its logit."""


class PastCall(Struct, frozen=True, kw_only=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    name: str
    arguments: str
    """JSON; an object, unless a client sent something else."""


class Turn(Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[PastCall, ...] = ()
    """Of the assistant, after its text."""
    call_id: str = ""
    """Of a tool: the id of the call that it answers."""
    name: str = ""
    """Of a tool: its name, if the conversation has it; else empty."""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str
    input_schema: str
    """JSON Schema of its arguments, an object."""


class Structure(Struct, frozen=True, kw_only=True):
    """The structure that the text of an answer is constrained to while it is generated."""

    kind: Literal["json_schema", "regex", "gbnf", "lark"]
    source: str
    """The schema as JSON, the pattern, or the grammar with its ``root`` or ``start``."""
    in_v1: bool = False
    """Whether it came as ``grammar`` of a v1 request."""

    @property
    def field(self) -> str:
        """The request's field that it came from."""
        part = {"json_schema": "schema", "regex": "pattern"}.get(self.kind, "grammar")
        return "grammar" if self.in_v1 else f"response_format.{part}"


class ToolChoice(Struct, frozen=True):
    """Whether the model calls tools."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool to call, if it is named."""

    @property
    def is_forced(self) -> bool:
        """Whether an answer must contain a call."""
        return self.kind in ("required", "named")


class RenderedJob(Struct, frozen=True, kw_only=True):
    """The prompt and grammar rendered from a job's messages, tools and structure."""

    pieces: tuple[str, ...]
    """The prompt, split so that a client's text cannot become a special token."""
    open_thought: str = ""
    """The marker of the reasoning that the prompt ends inside, if any."""
    grammar: str = ""
    """The grammar of the answer for llguidance, which compiled within all bounds. Empty if
    the answer is not constrained."""


class GenerateJob(Struct, frozen=True, kw_only=True, tag="generate"):
    """An answer to generate."""

    owner: int = NO_UID
    """The user who sent the request: cached state is reused only for the same user.

    Numbers below ``NO_UID`` are owners without a uid of their own, such as a connection whose
    uid the kernel does not know."""
    turns: list[Turn]
    """The conversation, oldest first."""
    input_tokens: list[int] = []
    """In place of turns: the tokens of the whole prompt; 0 to 2**32 - 1."""
    content: Raw | UnsetType = UNSET
    """The turns or tokens as msgpack, if another process has decoded them: ``turns`` is then
    a short list that only tells whether there are calls, and ``input_tokens`` one that tells
    whether there are any. The worker gets the turns or the tokens."""
    media: tuple[Media, ...] = ()
    """The media that its texts refer to, in order."""
    marker: str = ""
    """The placeholder in texts of turns for each of the media; random, so that no client
    can have sent it."""
    cache: CacheUse = "auto"
    """Use of the prompt cache by this job."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    thinks: bool = False
    """Whether a reasoning trace is requested."""
    structure: Structure | None = None
    max_tokens: int
    min_tokens: int = 0
    """Tokens before which the model cannot end its turn."""
    sampling: Sampling
    stops: tuple[str, ...] = ()
    """Texts that end the answer; the daemon finds them and then drops the job."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the answer."""
    n_alternatives: int = 0
    """Log probabilities requested for each token; 0 for none."""
    wants_token_ids: bool = False
    """Whether to report the id of each token."""
    prefill_only: bool = False
    """Process the prompt and generate nothing."""
    wants_progress: bool = False
    """Whether to report progress of the prompt."""
    rendered: RenderedJob | None = None
    """The rendered prompt and grammar, if the preparer has made them."""
    via: tuple[str, ...] = ()
    """The daemons that pass it on, this one last, for a remote engine; else empty."""

    @property
    def is_plain(self) -> bool:
        """Whether its prompt is so small that a worker may render it itself, at any cost.

        It has no tools, no calls, no structure, few turns, and little text; or it is tokens,
        and there is nothing to render.
        """
        if self.input_tokens:
            return self.structure is None
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
        """Whether text in the format of a call is treated as one."""
        knows_calls = bool(self.tools) or any(turn.calls for turn in self.turns)
        return knows_calls and self.tool_choice.kind != "none"

    @property
    def is_structured(self) -> bool:
        """Whether the answer is constrained by a grammar while it is generated."""
        return self.structure is not None or self.tool_choice.is_forced

    @property
    def has_structured_text(self) -> bool:
        """Whether text, if there is any, is constrained to a structure."""
        return self.structure is not None and not self.tool_choice.is_forced

    @property
    def tells_structure(self) -> bool:
        """Whether its end reports if the structure is complete: only if it generates."""
        return self.is_structured and self.max_tokens > 0 and not self.prefill_only


class EmbedJob(Struct, frozen=True, kw_only=True, tag="embed"):
    """Texts to turn into vectors: either ``texts`` or ``tokens`` has them."""

    texts: list[str] = []
    tokens: list[list[int]] = []
    """Tokens of texts, without those that a model puts around a text; 0 to 2**32 - 1."""
    content: Raw | UnsetType = UNSET
    """The texts or tokens as msgpack, as in ``GenerateJob``: ``texts`` or ``tokens`` then has
    as many empty ones."""
    dimensions: int | None
    """How many numbers of a vector to keep, from its beginning; ``None`` for all."""
    task: str | None
    via: tuple[str, ...] = ()
    """The daemons that pass it on, this one last, for a remote engine; else empty."""

    @property
    def field(self) -> str:
        """The request's field that its texts came from."""
        return "tokens" if self.tokens else "input"

    @property
    def n_inputs(self) -> int:
        """Number of its texts."""
        return len(self.tokens or self.texts)


class RerankJob(Struct, frozen=True, kw_only=True, tag="rerank"):
    """Documents to score against a query."""

    query: str
    documents: list[str]
    via: tuple[str, ...] = ()
    """The daemons that pass it on, this one last, for a remote engine; else empty."""


Timestamps = Literal["segment", "word"]
"""The unit of the pieces of a transcription, each of which has its times."""


class TranscribeJob(Struct, frozen=True, kw_only=True, tag="transcribe"):
    """Speech to transcribe."""

    owner: int = NO_UID
    """The user who sent the request."""
    audio: Media
    prompt: str = ""
    """Words that may occur, and the style of the text."""
    language: str | None = None
    """whisper's code of the language; ``None`` to detect it."""
    translates: bool = False
    """Whether to translate into English."""
    timestamps: Timestamps = "segment"
    temperature: float | None = None
    """0 to 2, of the first attempt; ``None`` for the library's default."""
    max_tokens: int | None = None
    """Of the whole text; ``None`` for no limit."""
    wants_partials: bool = False
    """Whether to report provisional text."""
    wants_logprobs: bool = False
    """Whether to report the log probability of each token."""
    via: tuple[str, ...] = ()
    """The daemons that pass it on, this one last, for a remote engine; else empty."""


Job = GenerateJob | EmbedJob | RerankJob | TranscribeJob


def needs_compile(job: Job) -> bool:
    """Tell whether a worker compiles a grammar to prepare a job, which may take a second.

    It does so beside all other jobs, and one such job is prepared at a time.
    """
    if not isinstance(job, GenerateJob) or job.rendered is None:
        return False
    return bool(job.rendered.grammar)


def media_of(job: Job) -> tuple[Media, ...]:
    """Return a job's media, in the order of its descriptors."""
    match job:
        case GenerateJob(media=media):
            return media
        case TranscribeJob(audio=audio):
            return (audio,)
        case _:
            return ()
