"""The kind ``llamacpp``: GGUF models, run by llama.cpp in a worker."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from inferd.config.choices import CacheType, Family, ModelUse, Speculation
from inferd.config.kinds.kind import (
    BackendKind,
    Contradiction,
    DoctorPolicy,
    FileFormat,
    InWorker,
    RequiredFile,
    Sandbox,
    demands_memory,
    no_credential,
)
from inferd.config.kinds.model_paths import (
    FindModel,
    LocatedFile,
    LocatedModel,
    absolute_path,
    locate_model_files,
)
from inferd.config.settings import (
    I32_MAX,
    ConfigError,
    FilePath,
    Name,
    Sha256,
    WorkerSettings,
)
from inferd.limits.accelerator import MAX_DEVICES, MAX_SPLIT
from inferd.limits.engine import (
    DRAFT_TOKENS,
    MAX_DRAFT_TOKENS,
    MAX_RUNGS,
    MAX_THREADS,
    MEDIA_CACHE_MB,
    PAUSE_MB,
    PROMPT_CACHE_MB,
)
from inferd.limits.model_files import MODEL_PARTS
from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.parts import parts_beside

AUTO: Final = "auto"
"""In place of a model: the first of the ladder that fits."""


class LlamaCppSettings(WorkerSettings, frozen=True, tag="llamacpp", tag_field="kind"):
    """A backend that runs a GGUF model with llama.cpp."""

    model: FilePath = "embedded:chat"
    """Path of a GGUF file, of a split one that of the first part (``…-00001-of-00003.gguf``);
    name of a model in the store (``inferd model list``), ``embedded:chat``,
    ``embedded:embed``, ``embedded:rerank``, or ``auto``: the first of ``ladder`` that fits
    into memory. A file of that name is ``./auto``."""
    model_parts: Annotated[tuple[FilePath, ...], Meta(max_length=MODEL_PARTS - 1)] = ()
    """Paths of the other parts of a split model, in order. Default: those beside the first
    that are named like it, or those in the store."""
    ladder: Annotated[tuple[FilePath, ...], Meta(max_length=MAX_RUNGS)] = ()
    """With ``model = "auto"``: models as above, the largest first. At the start, and at a
    reload that changes this table, the first one is chosen that fits into the memory budget beside the other backends, with one slot and 2048
    tokens at least, or with ``n_ctx`` and ``max_active`` as configured."""
    sha256: (
        Sha256
        | Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=MODEL_PARTS)]
        | None
    ) = None
    """Required SHA-256 of the file, checked at every load; of a split model, a list with that
    of each part, in order. Default: not checked, but for models of the store."""
    mmproj: FilePath | None = None
    """Path of a GGUF file with the model's projector, which encodes images or audio. Default:
    that of a model in the store, if it has one."""
    mmproj_sha256: Sha256 | None = None
    """Required SHA-256 of the projector's file. Default: not checked."""
    n_ctx: Annotated[int, Meta(ge=8, le=I32_MAX)] | None = None
    """Tokens of one request, prompt and answer. Default: 8192, or the model's if that is
    less; reduced to fit into memory, but to no less than 2048."""
    cache_type_k: CacheType = "f16"
    """Type of the keys in the KV cache: ``f16``, or ``q8_0`` in about half the memory."""
    cache_type_v: CacheType = "f16"
    """Type of the values; ``q8_0`` needs flash attention, which most models support."""
    n_threads: Annotated[int, Meta(ge=1, le=MAX_THREADS)] | None = None
    """Maximum of decoding threads; fewer while other processes use the cores. Default: the
    cores that this process may use."""
    cpu_variant: Name | None = None
    """The only variant of llama.cpp's CPU code to use, as ``inferd doctor`` names it.
    Default: the best for this processor, and the next one if that crashes."""
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=I32_MAX)] | Literal["auto", "all"] = 0
    """Layers on accelerators: a number, ``all`` (or -1), or ``auto`` for as many as fit into
    their free memory, none where there is no accelerator."""
    main_gpu: Annotated[int, Meta(ge=0, lt=MAX_DEVICES)] | None = None
    """The only accelerator to use, counted from 0 as ``inferd doctor`` lists them. Default:
    all of them."""
    tensor_split: (
        Annotated[
            tuple[Annotated[float, Meta(ge=0, le=MAX_SPLIT)], ...],
            Meta(min_length=1, max_length=MAX_DEVICES),
        ]
        | None
    ) = None
    """Parts of the layers that each accelerator gets, in the order of ``inferd doctor``; only
    their ratios matter. Default: by free memory."""
    require_accelerator: bool = False
    """Whether the start fails where no layer would be on an accelerator."""
    serves: ModelUse | None = None
    """Purpose of the model: ``generate``, ``embed`` or ``rerank``. Default: from its file,
    where a pooling type makes it an embedding model or a reranker."""
    embed_pooling: Annotated[int, Meta(ge=1, le=4)] | None = None
    """Pooling of an embedding model: 1 mean, 2 first token, 3 last token; 4 for the score
    of a reranker. Default: from its file."""
    prompt_cache_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = PROMPT_CACHE_MB
    """MiB of main memory to cache prompts and answers that may be continued, as far as the
    budget allows; 0 disables all caching, also in the context."""
    pause_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = PAUSE_MB
    """MiB of main memory for the states of paused requests; a request whose state does not
    fit is prefilled again when it is resumed."""
    media_cache_mb: Annotated[int, Meta(ge=0, le=I32_MAX)] = MEDIA_CACHE_MB
    """MiB of main memory to cache encoded images and audio; 0 disables it."""
    speculation: Speculation = "off"
    """Speculative decoding: ``lookup`` drafts the tokens that followed the same ones
    earlier in the text, ``draft`` uses another model. It changes answers only as another
    batch size does, by the rounding of sums. How much faster answers are depends on machine
    and text. Recurrent models do not support it."""
    draft_model: FilePath | None = None
    """With ``speculation = "draft"``: path of a GGUF file of a much smaller model with the
    same vocabulary. Its weights, and a context as large as that of the model in ``f16``, count as
    memory of this backend."""
    draft_max: Annotated[int, Meta(ge=1, le=MAX_DRAFT_TOKENS)] = DRAFT_TOKENS
    """Most tokens that are drafted at once for one answer."""
    chat_template: Family | None = None
    """Model family that determines the format of prompts, reasoning and tool calls.
    Default: from the file's architecture and chat template."""


def n_gpu_layers(settings: LlamaCppSettings) -> int:
    """Return the layers on accelerators; -1 for all, also for ``auto`` until it is fitted."""
    wanted = settings.n_gpu_layers
    return -1 if isinstance(wanted, str) else wanted


def _contradiction(settings: LlamaCppSettings) -> Contradiction | None:
    return _of_ladder(settings) or _of_files(settings)


def _of_ladder(settings: LlamaCppSettings) -> Contradiction | None:
    match settings:
        case LlamaCppSettings(model="auto", ladder=()):
            return Contradiction("model", AUTO, "ladder, the models to choose from")
        case LlamaCppSettings(model="auto"):
            return _of_one_model(settings)
        case LlamaCppSettings(ladder=(_, *_) as rungs):
            return Contradiction("ladder", rungs, "model = 'auto'")
        case _:
            return None


def _of_one_model(settings: LlamaCppSettings) -> Contradiction | None:
    """Find a setting that is for one model, where there is a ladder of several."""
    for key in ("sha256", "model_parts", "mmproj"):
        if given := getattr(settings, key):
            value = list(given) if isinstance(given, tuple) else given
            return Contradiction(key, value, "a model that is not 'auto'")
    return None


def _of_files(settings: LlamaCppSettings) -> Contradiction | None:
    match settings:
        case LlamaCppSettings(speculation="draft", draft_model=None):
            return Contradiction(
                "speculation", "draft", "draft_model, the path of a GGUF file"
            )
        case LlamaCppSettings(speculation="off" | "lookup", draft_model=str(draft)):
            return Contradiction("draft_model", draft, "speculation = 'draft'")
        case LlamaCppSettings(mmproj=None, mmproj_sha256=str(digest)):
            return Contradiction("mmproj_sha256", digest, "mmproj")
        case _:
            return _contradicting_placement(settings)


def _contradicting_placement(settings: LlamaCppSettings) -> Contradiction | None:
    match settings:
        case LlamaCppSettings(require_accelerator=True, n_gpu_layers=0):
            key = "require_accelerator"
            return Contradiction(key, "true", "n_gpu_layers other than 0")
        case LlamaCppSettings(main_gpu=int(), tensor_split=tuple(parts)):
            return Contradiction("tensor_split", list(parts), "no main_gpu")
        case LlamaCppSettings(tensor_split=tuple(parts)) if not any(parts):
            needs = "a number above 0 in it"
            return Contradiction("tensor_split", list(parts), needs)
        case _:
            return None


def _rungs(settings: LlamaCppSettings) -> list[LlamaCppSettings]:
    if settings.model != AUTO:
        return []
    return [replace(settings, model=rung, ladder=()) for rung in settings.ladder]


def _locate(settings: LlamaCppSettings, find: FindModel) -> LlamaCppSettings:
    if settings.model == AUTO:
        raise ConfigError(
            f"backend {settings.name}: model = 'auto' needs a ladder, and is chosen when the "
            "daemon starts"
        )
    name, draft, mmproj = settings.name, settings.draft_model, settings.mmproj
    if draft is not None:
        draft = absolute_path(draft, backend=name, key="draft_model")
    if mmproj is not None:
        mmproj = absolute_path(mmproj, backend=name, key="mmproj")
    located = locate_model_files(
        settings.model, backend=name, kind=LLAMACPP.name, find=find
    )
    settings = replace(
        _with_parts(settings, located),
        draft_model=draft,
        mmproj=mmproj,
    )
    if located.projector is None or mmproj is not None:
        return settings
    projector = located.projector
    return replace(settings, mmproj=projector.path, mmproj_sha256=projector.sha256)


def _with_parts(settings: LlamaCppSettings, located: LocatedModel) -> LlamaCppSettings:
    """Return the settings with the paths and digests of all parts of the model."""
    parts = _parts(settings, located)
    files = (located.model, *parts)
    known = [file.sha256 for file in files if file.sha256 is not None]
    if (given := settings.sha256) is None:
        sha256 = tuple(known) or None
    else:
        sha256 = (given,) if isinstance(given, str) else given
    if sha256 is not None and len(sha256) != len(files):
        raise ConfigError(
            f"backend {settings.name}: the model is in {len(files)} files, and sha256 has "
            f"{len(sha256)}; allowed: a list of {len(files)}, one for each in order"
        )
    return replace(
        settings,
        model=located.model.path,
        model_parts=tuple(file.path for file in parts),
        sha256=sha256[0] if sha256 is not None and not parts else sha256,
    )


def _parts(
    settings: LlamaCppSettings, located: LocatedModel
) -> tuple[LocatedFile, ...]:
    """Return the other parts of a model: as configured, of the store, or by their names."""
    name = settings.name
    if located.kind is not None and settings.model_parts:
        raise ConfigError(
            f"backend {name}: model_parts = {list(settings.model_parts)} goes with the path "
            f"of a file as model, and {settings.model!r} is a name"
        )
    try:
        paths = [
            absolute_path(part, backend=name, key="model_parts")
            for part in settings.model_parts
        ] or map(str, parts_beside(Path(located.model.path)))
    except ModelFileError as error:
        raise ConfigError(f"backend {name}: {located.model.path}: {error}") from error
    return located.parts or tuple(LocatedFile(path, None) for path in paths)


def _files(settings: LlamaCppSettings) -> list[RequiredFile]:
    given = settings.sha256
    digests = given if isinstance(given, tuple) else (given,)
    files = [
        RequiredFile("model", Path(path), digest)
        for path, digest in zip_longest(
            (settings.model, *settings.model_parts), digests
        )
    ]
    if settings.mmproj is not None:
        projector = Path(settings.mmproj)
        files.append(RequiredFile("mmproj", projector, settings.mmproj_sha256))
    return [*files, *_draft_files(settings)]


def _draft_files(settings: LlamaCppSettings) -> Iterator[RequiredFile]:
    """Yield the file of the draft model, or all parts of a split one, found by their names."""
    if settings.draft_model is None:
        return
    path, parts = Path(settings.draft_model), list[Path]()
    with suppress(ModelFileError):  # too many: the worker says so, as it loads none
        parts = parts_beside(path)
    for each in (path, *parts):
        yield RequiredFile("draft_model", each, None)


def _without_hashes(settings: LlamaCppSettings) -> LlamaCppSettings:
    return replace(settings, sha256=None, mmproj_sha256=None)


def _sandbox(settings: LlamaCppSettings) -> Sandbox:
    return Sandbox.ACCELERATED if settings.n_gpu_layers else Sandbox.CPU


LLAMACPP: Final = BackendKind(
    settings=LlamaCppSettings,
    served_by=InWorker(
        program="inferd.worker.llama",
        sandbox=_sandbox,
        memory=demands_memory,
        credential=no_credential,
    ),
    extra="llama",
    doctor=DoctorPolicy(
        files=_files, without_hashes=_without_hashes, needs=["packages"]
    ),
    file_format=FileFormat(b"GGUF", "GGUF"),
    contradiction=_contradiction,
    rungs=_rungs,
    locate=_locate,
)
