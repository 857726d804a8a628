"""Predict the memory that serving a model takes, without loading its weights."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.settings import I32_MAX
from inferd.limits.engine import DEFAULT_CONTEXT_TOKENS, MIN_FITTED_CONTEXT_TOKENS
from inferd.memory.plan import LinearSize, MemoryDemand, Sample, upper_bound
from inferd.worker.backend import LoadError
from inferd.worker.llama.encoder import batch_tokens
from inferd.worker.llama.gguf.files import ModelFile, ModelFiles
from inferd.worker.llama.memory.breakdown import Breakdown, breakdown
from inferd.worker.llama.memory.projector import ProjectorMemory, projector_bytes
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.load import LoadExtent
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.speculation.setup import (
    check_draft_model,
    check_speculation,
    open_draft,
)
from inferd.worker.process_memory import resident_bytes

GRAMMAR_TOKEN_BYTES: Final = 450
"""Bytes per token of the vocabulary for grammars, in the worker. Measured: 420 to 450 with
49,152 and 262,144 tokens."""

PREPARER_TOKEN_BYTES: Final = 540
"""Bytes per token that the first grammar adds: 500 in the preparer process, and up to 40 in
the worker for sending the vocabulary. Measured with the same two vocabularies."""

PREPARER_BYTES: Final = 24 * 1024 * 1024
"""Bytes of the preparer process and its fork without a vocabulary. Measured: 19 to 21 MiB
proportional set size, more if fewer processes share the pages of Python and libraries."""

VOCABULARY_TEXT_BYTES: Final = 150
"""Bytes of this process per token or merge rule of the vocabulary. Measured with four
models: 100 to 147."""

GROWTH_BYTES: Final = 16 * 1024 * 1024
"""Bytes by which a worker grows while it loads and serves: graphs, threads, jobs. Measured:
8 to 14 MB."""

_MEASURED_TOKENS: Final = 2**20
"""Largest context that is measured, which takes 0.3 s; the time grows with the size."""

_FLOAT_BYTES: Final = 4


class _Point(NamedTuple):
    n_slots: int
    n_tokens: int
    """Tokens of all slots together."""
    parts: Breakdown
    results: int
    """Bytes for the output of a batch."""


class _ModelMemory(NamedTuple):
    """Memory of a model and of its contexts by size."""

    weights: int
    cache: LinearSize
    compute: LinearSize
    accelerator: Counter[int]
    """By the handle of the device."""


class Prediction(NamedTuple):
    """What serving a model takes."""

    demand: MemoryDemand
    devices: Mapping[int, int]
    """Bytes on each accelerator, by its handle."""


_Make = Callable[[LlamaModel, int, int], LlamaContext]
"""Makes a context: model, slots, tokens of all slots together."""


def predict(
    files: ModelFiles,
    settings: LlamaCppSettings,
    n_slots: int,
    alive: Callable[[], None],
) -> Prediction:
    """Load a model without weights, create contexts without buffers, and add up.

    A draft model counts like the model itself, a projector with its compute buffers and the
    media cache.

    Args:
        files: the files that the settings name.
        settings: as configured, with a number of layers on accelerators.
        n_slots: jobs that run at once.
        alive: called regularly as a sign of life.

    Raises:
        LoadError: the model cannot be served with these settings.
    """
    extent: LoadExtent = (
        "no_weights" if files.draft else "no_vocabulary"
    )  # two are compared by words
    with closing(LlamaModel(files.model, settings, alive, extent)) as model:
        check_speculation(model, settings)
        projector = _projector_memory(files.projector, model, settings)
        if files.draft is None:
            return _add_projector(
                projector, _predict(model, None, settings, n_slots), settings
            )
        with closing(open_draft(files.draft, settings, alive, "no_weights")) as draft:
            check_draft_model(draft, model, files.draft.path)
            return _add_projector(
                projector, _predict(model, draft, settings, n_slots), settings
            )


class Layers(NamedTuple):
    """What a model has that accelerators can hold."""

    n_layers: int
    n_ctx: int
    """Tokens of a request, as wanted."""
    n_slots: int
    row_bytes: int
    """Of a token in the largest tensor of the KV cache."""

    @property
    def cache_tensor_bytes(self) -> int:
        """Bytes of that tensor."""
        return self.row_bytes * self.n_ctx * self.n_slots


def measure_layers(
    files: ModelFiles,
    settings: LlamaCppSettings,
    n_slots: int,
    alive: Callable[[], None],
) -> Layers:
    """Return the layers of a model that accelerators can hold, and their cache.

    Raises:
        LoadError: the library refused the file.
    """
    extent: LoadExtent = "no_vocabulary"
    with closing(LlamaModel(files.model, settings, alive, extent)) as model:
        n_ctx = _wanted_tokens(model, settings)
        slots = n_slots if model.use == "generate" else 1
        return Layers(model.n_layers, n_ctx, slots, model.cache_row_bytes)


def _projector_memory(
    projector: ModelFile | None, model: LlamaModel, settings: LlamaCppSettings
) -> ProjectorMemory | None:
    """Predict a projector's memory, if there is one.

    Raises:
        LoadError: the model does not generate text, or the projector is not valid.
    """
    if projector is None:
        return None
    if model.use != "generate":
        raise projector.load_error(
            "the model does not generate text, so it takes no projector"
        )
    return projector_bytes(projector, uses_accelerator=bool(settings.n_gpu_layers))


def _add_projector(
    projector: ProjectorMemory | None,
    prediction: Prediction,
    settings: LlamaCppSettings,
) -> Prediction:
    if projector is None:
        return prediction
    demand = prediction.demand
    devices = Counter(prediction.devices) + Counter(projector.accelerator)
    return Prediction(
        replace(
            demand,
            weights=demand.weights + projector.host,
            own=demand.own + settings.media_cache_mb * 2**20,
            accelerator=devices.total(),
        ),
        devices,
    )


def _predict(
    model: LlamaModel,
    draft: LlamaModel | None,
    settings: LlamaCppSettings,
    n_slots: int,
) -> Prediction:
    generates = model.use == "generate"
    n_ctx = _wanted_tokens(model, settings)
    slots = n_slots if generates else 1
    if n_ctx * slots > I32_MAX:
        raise LoadError(
            f"n_ctx = {n_ctx}: {slots} slots of it are more than llama.cpp can count"
        )
    own = resident_bytes()  # before the contexts leave allocations behind
    memories = [
        _measure_model(
            model, _for_generation if generates else _for_encoding, n_ctx, slots
        )
    ]
    if draft is not None:
        memories.append(_measure_model(draft, _for_drafting, n_ctx, slots))
    devices = sum((each.accelerator for each in memories), Counter[int]())
    demand = MemoryDemand(
        n_ctx=n_ctx,
        is_set=settings.n_ctx is not None,
        has_slots=generates,
        weights=sum(each.weights for each in memories),
        own=own
        + VOCABULARY_TEXT_BYTES * model.n_skipped_texts
        + len(memories) * GROWTH_BYTES
        + generates * _grammar_bytes(model),
        cache=sum((each.cache for each in memories), LinearSize()),
        compute=sum((each.compute for each in memories), LinearSize()),
        accelerator=devices.total(),
        pause=generates * settings.pause_mb * 2**20,
        store=generates * settings.prompt_cache_mb * 2**20,
    )
    return Prediction(demand, devices)


def _grammar_bytes(model: LlamaModel) -> int:
    """Predict the memory of grammars, in this process and the preparer."""
    per_token = GRAMMAR_TOKEN_BYTES + PREPARER_TOKEN_BYTES
    return model.n_vocab * per_token + PREPARER_BYTES


def _wanted_tokens(model: LlamaModel, settings: LlamaCppSettings) -> int:
    """Return the context length per request; encoders get at most their training length."""
    wanted = settings.n_ctx or min(DEFAULT_CONTEXT_TOKENS, model.n_ctx_train)
    return wanted if model.use == "generate" else min(wanted, model.n_ctx_train)


def _measure_model(
    model: LlamaModel, make: _Make, n_ctx: int, n_slots: int
) -> _ModelMemory:
    points = list(_measure(model, make, n_ctx, n_slots))
    last = points[-1].parts
    return _ModelMemory(
        # The whole file stays mapped, so repacked weights count twice.
        weights=last.mapped + 2 * last.repacked,
        cache=upper_bound(
            [Sample(each.n_slots, each.n_tokens, each.parts.cache) for each in points]
        ),
        compute=upper_bound(
            [
                Sample(
                    each.n_slots,
                    each.n_tokens // each.n_slots,
                    each.parts.compute + each.results,
                )
                for each in points
            ]
        ),
        accelerator=_on_devices(points, n_slots, n_ctx * n_slots),
    )


def _on_devices(points: Sequence[_Point], n_slots: int, n_tokens: int) -> Counter[int]:
    """Return the bytes on each device: measured, or drawn on for larger contexts."""
    last = points[-1]
    if n_tokens <= last.n_tokens:
        return Counter(last.parts.accelerator)
    sizes = {
        device: upper_bound(
            [
                Sample(
                    each.n_slots, each.n_tokens, each.parts.accelerator.get(device, 0)
                )
                for each in points
            ]
        )
        for device in last.parts.accelerator
    }
    return Counter(
        {device: each.at(n_slots, n_tokens) for device, each in sizes.items()}
    )


def _measure(
    model: LlamaModel, make: _Make, n_ctx: int, n_slots: int
) -> Iterator[_Point]:
    """Create contexts of several sizes, up to the wanted one or ``_MEASURED_TOKENS``."""
    few = min(n_ctx, MIN_FITTED_CONTEXT_TOKENS)
    one, whole = (min(each, _MEASURED_TOKENS) for each in (n_ctx, n_ctx * n_slots))
    sizes = [(1, few), (1, one), (1, whole // n_slots), (1, whole), (n_slots, whole)]
    for slots, n_tokens in dict.fromkeys(sizes):
        context = make(model, slots, n_tokens)
        yield _Point(
            slots,
            n_tokens,
            breakdown(context.handle, model.n_bytes),
            context.n_outputs * _row_bytes(model),
        )
        context.close()


def _for_generation(model: LlamaModel, n_slots: int, n_tokens: int) -> LlamaContext:
    return LlamaContext.for_generation(
        model, n_tokens=n_tokens, n_slots=n_slots, n_threads=1
    )


def _for_drafting(model: LlamaModel, n_slots: int, n_tokens: int) -> LlamaContext:
    return LlamaContext.for_drafting(
        model, n_tokens=n_tokens, n_slots=n_slots, n_threads=1
    )


def _for_encoding(model: LlamaModel, _n_slots: int, n_tokens: int) -> LlamaContext:
    return LlamaContext.for_encoding(model, n_batch=batch_tokens(n_tokens), n_threads=1)


def _row_bytes(model: LlamaModel) -> int:
    """Return the bytes of an output row: llama.cpp always reserves logits."""
    n_embd = 0 if model.use == "generate" else model.n_embd
    return _FLOAT_BYTES * (model.n_vocab + n_embd)
