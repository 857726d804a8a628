"""Routing of requests to backends."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import Backend
from inferd.errors import (
    AttachmentUnsupportedError,
    BackendNotReadyError,
    BackendUnavailableError,
    InferdError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
)
from inferd.limits.protocol import MAX_LISTED_MODELS


class Requirement(NamedTuple):
    """A capability that a request requires of a backend."""

    subject: str
    """What a backend without it has no support for, as in an error message."""
    is_met_by: Callable[[BackendCapabilities], bool]
    refusal: Callable[[str, BackendCapabilities], InferdError]
    """Makes the error if no backend meets it, from the first backend's name and
    capabilities."""
    encoded: tuple[str | int, ...] = ()
    """Its constructor's name and arguments, for another process; empty for a constant."""
    remark: Callable[[BackendCapabilities], str] = lambda _: ""
    """What the refusal says of a backend that is named and lacks it."""


GENERATES: Final = Requirement(
    "text generation",
    lambda caps: caps.generate,
    lambda *_: BackendUnavailableError("no backend available"),
)
SERVES_V2: Final = Requirement(
    "answers in typed blocks",
    lambda caps: caps.v2,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
TAKES_IMAGES: Final = Requirement(
    "image attachments",
    lambda caps: caps.vision,
    lambda *_: AttachmentUnsupportedError("no backend takes image attachments"),
)
TAKES_AUDIO: Final = Requirement(
    "answers to audio",
    lambda caps: caps.audio,
    lambda *_: AttachmentUnsupportedError("no backend answers to audio attachments"),
)
TAKES_VIDEO: Final = Requirement(
    "video attachments",
    lambda caps: caps.video,
    lambda *_: AttachmentUnsupportedError("no backend takes video attachments"),
)
TAKES_TOOLS: Final = Requirement(
    "tools",
    lambda caps: caps.tools,
    lambda *_: InvalidRequestError("no backend takes tools"),
)
HAS_REASONING: Final = Requirement(
    "reasoning traces",
    lambda caps: caps.thinking,
    lambda *_: InvalidRequestError("thinking true: no backend has a reasoning trace"),
)
CONSTRAINS_OUTPUT: Final = Requirement(
    "structured answers",
    lambda caps: caps.structure,
    lambda *_: InvalidRequestError("no backend holds an answer to a structure"),
)
KNOWS_TOKENS: Final = Requirement(
    "ids of tokens",
    lambda caps: caps.generate and (caps.token_ids or not caps.remote),
    lambda *_: InvalidRequestError("input_tokens, token_ids: no model tells ids"),
)
GENERATES_OR_TRANSCRIBES: Final = Requirement(
    "text generation or transcription",
    lambda caps: caps.generate or caps.transcribe,
    lambda *_: BackendUnavailableError("no backend available"),
)
"""For a request with audio: a text may be generated from it, or a transcript made."""
GENERATES_V2_OR_TRANSCRIBES: Final = Requirement(
    "answers in typed blocks",
    lambda caps: caps.v2 or caps.transcribe,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
HANDLES_AUDIO: Final = Requirement(
    "audio attachments",
    lambda caps: caps.audio or caps.transcribe,
    lambda *_: AttachmentUnsupportedError("no backend takes audio attachments"),
)
EMBEDS: Final = Requirement(
    "embeddings",
    lambda caps: caps.embed,
    lambda *_: BackendUnavailableError("no embed-capable backend available"),
)
RERANKS: Final = Requirement(
    "reranking",
    lambda caps: caps.rerank,
    lambda *_: BackendUnavailableError("no rerank-capable backend available"),
)


def transcribes(asking: str) -> Requirement:
    """Make the requirement of a request for a transcript.

    Args:
        asking: the field of the request that asks for it.
    """
    return Requirement(
        "transcription",
        lambda caps: caps.transcribe,
        lambda *_: InvalidRequestError(f"{asking}: no backend transcribes speech"),
        ("transcribes", asking),
    )


def takes_rate(audio_id: str, rate: int) -> Requirement:
    """Make the requirement of a request with audio.

    Args:
        audio_id: the attachment's id.
        rate: its sample rate in Hz.
    """
    return Requirement(
        f"audio of {rate} samples a second",
        lambda caps: caps.audio_sample_rate in (0, rate),
        lambda name, caps: InvalidRequestError(
            f'attachment "{audio_id}": sample_rate {rate} is not the '
            f'{caps.audio_sample_rate} that backend "{name}" takes'
        ),
        ("takes_rate", audio_id, rate),
    )


def has_context(n_tokens: int) -> Requirement:
    """Make the requirement of a request whose model has a context of so many tokens."""
    return Requirement(
        f"a context of {n_tokens} tokens",
        lambda caps: not caps.n_ctx or caps.n_ctx >= n_tokens,
        lambda name, caps: InvalidRequestError(
            f'min_n_ctx: the context of backend "{name}" has {caps.n_ctx} tokens, '
            f"{n_tokens} are asked for"
        ),
        ("has_context", n_tokens),
        lambda caps: f", only for one of {caps.n_ctx}",
    )


_CONSTANTS: Final[Mapping[str, Requirement]] = {
    name: value for name, value in globals().items() if isinstance(value, Requirement)
}
_NAMES: Final = {id(value): name for name, value in _CONSTANTS.items()}


def encode_requirement(requirement: Requirement) -> tuple[str | int, ...]:
    """Encode a requirement for another process."""
    return requirement.encoded or (_NAMES[id(requirement)],)


def decode_requirement(encoded: Sequence[str | int]) -> Requirement:
    """Decode a requirement from the output of ``encode_requirement``.

    Raises:
        ValueError: the input is no requirement.
    """
    match encoded:
        case ["transcribes", str() as asking]:
            return transcribes(asking)
        case ["takes_rate", str() as audio_id, int() as rate]:
            return takes_rate(audio_id, rate)
        case ["has_context", int() as n_tokens]:
            return has_context(n_tokens)
        case [str() as name] if name in _CONSTANTS:
            return _CONSTANTS[name]
        case _:
            raise ValueError(f"no requirement: {encoded}")


class ModelNames:
    """The names by which requests may ask for a backend.

    A request's ``model`` is matched in this order: the name of a backend, an alias of one,
    the name of a model of the store. A configuration has no two that are equal; case matters.

    A model of the store becomes a backend when it is first asked for. Requests without a name
    do not go there, unless no backend is configured and the store has one model.

    Args:
        aliases: the aliases of each configured backend, by its name.
    """

    def __init__(self, aliases: Mapping[str, Sequence[str]] | None = None) -> None:
        self._aliases = aliases or {}
        self._in_store: Sequence[str] = ()
        self._stored: Sequence[str] = ()

    def replace(self, aliases: Mapping[str, Sequence[str]]) -> None:
        """Set the aliases of all configured backends; routed requests stay where they are."""
        self._aliases = aliases
        self._match_store()

    def replace_stored(self, names: Sequence[str]) -> None:
        """Set the names of the models of the store that are served."""
        self._in_store = names
        self._match_store()

    def _match_store(self) -> None:
        """Leave out the models whose names backends have."""
        self._stored = [
            name for name in self._in_store if not self._is_configured(name)
        ]

    def stored_name(self, model: str | None) -> str | None:
        """Return the model of the store that a request means; ``None`` for a backend.

        Args:
            model: that it names, if it names one.
        """
        if model is None:
            is_only = not self._aliases and len(self._stored) == 1
            return self._stored[0] if is_only else None
        return None if self._is_configured(model) else model

    def _is_configured(self, model: str) -> bool:
        return model in self._aliases or any(
            model in aliases for aliases in self._aliases.values()
        )

    def unnamed(
        self, backends: Sequence[Backend], requirements: Sequence[Requirement]
    ) -> Sequence[Backend]:
        """List the backends that a request without a name may go to.

        Args:
            backends: that the caller may use.
            requirements: of the request.

        Raises:
            BackendUnavailableError: it has to name a model of the store, or a backend that
                gets no other requests.
        """
        only = self.stored_name(None)
        found = [
            each
            for each in backends
            if not each.capabilities.by_name_only
            and (each.name == only or not self.is_stored(each))
        ]
        if found:
            return found
        if able := self.list_able(backends, requirements):
            raise BackendUnavailableError(
                f'no model is served without its name; "model" may be one of {", ".join(able)}'
            )
        return backends  # none of which meets the requirements

    def is_stored(self, backend: Backend) -> bool:
        """Return whether a backend is a model of the store."""
        return backend.name in self._stored

    def aliases_of(self, backend: str) -> Sequence[str]:
        """Return the aliases of a backend, by its name."""
        return self._aliases.get(backend, ())

    def find(self, backends: Sequence[Backend], model: str) -> Backend | None:
        """Find the backend that a request names; ``None`` if there is none."""
        for backend in backends:
            if backend.name == model:
                return backend
        for backend in backends:
            if model in self.aliases_of(backend.name):
                return backend
        return None

    def list_names(self, backends: Sequence[Backend]) -> Sequence[str]:
        """List ``MAX_LISTED_MODELS`` names at most, each backend's before its aliases."""
        names = (
            name
            for backend in backends
            for name in (backend.name, *self.aliases_of(backend.name))
        )
        return [*islice(names, MAX_LISTED_MODELS)]

    def list_able(
        self, backends: Sequence[Backend], requirements: Sequence[Requirement]
    ) -> Sequence[str]:
        """List the names of backends that meet all requirements, as ``list_names`` does.

        Models of the store whose headers have not been read follow: they may meet them.
        """
        able = self.able(backends, requirements)
        names = (*self.list_names(able), *self.unread(backends))
        return [*islice(names, MAX_LISTED_MODELS)]

    def unread(self, backends: Sequence[Backend]) -> Sequence[str]:
        """List the models of the store whose headers have not been read."""
        known = {each.name for each in backends}
        return [name for name in self._stored if name not in known]

    @staticmethod
    def able(
        backends: Sequence[Backend], requirements: Sequence[Requirement]
    ) -> Sequence[Backend]:
        """List the backends that meet all requirements."""
        return [
            each
            for each in backends
            if _first_unmet(each.capabilities, requirements) is None
        ]


_NO_ALIASES: Final = ModelNames()


def route(
    backends: Sequence[Backend],
    requirements: Sequence[Requirement],
    model: str | None = None,
    names: ModelNames = _NO_ALIASES,
) -> Backend:
    """Choose the first backend, in configured order, that meets all requirements.

    1. One that is ready.
    2. One that is only restarting: the request waits for it.
    3. One that is out of service: the request is refused with its reason.

    Args:
        backends: that the caller may use.
        requirements: of the request.
        model: if given, only the backend of this name or alias is considered.
        names: what ``model`` may be.

    Raises:
        InferdError: no backend can ever serve it: the refusal of the first requirement that
            eliminates the last candidate.
        ModelNotFoundError: no backend is called ``model``, or that one does not meet all
            requirements.
        BackendUnavailableError: case 3, or all that can serve it have to be named.
    """
    if model is not None:
        capable = [named_backend(backends, requirements, model, names)]
    else:
        capable = _capable(names.unnamed(backends, requirements), requirements)
    for backend in capable:
        if backend.ready:
            return backend
    for backend in capable:
        if backend.unavailable is None:
            return backend
    raise BackendNotReadyError(capable[0].unavailable or "", capable[0].retry_after_ms)


def named_backend(
    backends: Sequence[Backend],
    requirements: Sequence[Requirement],
    model: str,
    names: ModelNames,
) -> Backend:
    """Return the backend of a name or alias; takes and raises the same as ``route``."""
    backend = names.find(backends, model)
    if backend is None:
        reason = "is not served here"
    elif lacking := _first_unmet(backend.capabilities, requirements):
        remark = lacking.remark(backend.capabilities)
        reason = f"has no support for {lacking.subject}{remark}"
    else:
        return backend
    raise ModelNotFoundError(model, reason, names.list_able(backends, requirements))


def _first_unmet(
    capabilities: BackendCapabilities, requirements: Sequence[Requirement]
) -> Requirement | None:
    unmet = (each for each in requirements if not each.is_met_by(capabilities))
    return next(unmet, None)


def _capable(
    backends: Sequence[Backend], requirements: Sequence[Requirement]
) -> list[Backend]:
    capable = [*backends]
    for requirement in requirements:
        last = capable
        capable = [each for each in last if requirement.is_met_by(each.capabilities)]
        if not capable:
            raise _refusal(requirement, last)
    return capable


def _refusal(requirement: Requirement, last: Sequence[Backend]) -> InferdError:
    if not last:
        return requirement.refusal("", BackendCapabilities())
    return requirement.refusal(last[0].name, last[0].capabilities)
