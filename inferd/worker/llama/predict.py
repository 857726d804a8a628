"""Predict what serving a model takes, without loading its weights."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from msgspec.structs import replace

from inferd.config import I32_MAX, LlamaCppSettings
from inferd.fit import Demand, Line, Sample, line_over
from inferd.limits import DEFAULT_CONTEXT_TOKENS, MIN_FITTED_CONTEXT_TOKENS
from inferd.worker.backend import LoadError
from inferd.worker.llama.breakdown import Breakdown, breakdown
from inferd.worker.llama.context import Context
from inferd.worker.llama.encoder import batch_tokens
from inferd.worker.llama.files import Files, ModelFile
from inferd.worker.llama.guessing import (
    check_draft_model,
    check_speculation,
    open_draft,
)
from inferd.worker.llama.model import Model
from inferd.worker.llama.opening import Extent
from inferd.worker.llama.projector_memory import Taken, projector_bytes
from inferd.worker.memory import resident_bytes

GRAMMAR_TOKEN_BYTES: Final = 450
"""Bytes that a token of the vocabulary takes once grammars know it. Measured: 420 to 450
with 49,152 and 262,144 tokens."""

REHEARSAL_TOKEN_BYTES: Final = 540
"""Bytes that it takes besides, from the first grammar on, in the process that tries them:
500 there, and up to 40 that asking it leaves behind here. Measured with the same two."""

REHEARSAL_BYTES: Final = 24 * 1024 * 1024
"""Bytes of that process without a vocabulary, and of its fork. Measured: 19 to 21 MiB with
the pages of Python and its libraries shared out, more where fewer processes share them."""

TEXT_BYTES: Final = 150
"""Bytes by which a token of the vocabulary, or a rule by which two are merged, makes this
process larger. Measured with four models: 100 to 147."""

GROWTH_BYTES: Final = 16 * 1024 * 1024
"""Bytes by which a worker grows as it loads and serves: graphs, threads, jobs. Measured:
8 to 14 MB."""

_MEASURED_TOKENS: Final = 2**20
"""Largest context that is tried. The time that takes grows with it: 0.3 s for this one."""

_FLOAT_BYTES: Final = 4


class _Point(NamedTuple):
    n_slots: int
    n_tokens: int
    """Of all slots together."""
    parts: Breakdown
    results: int
    """Bytes for what a batch gives."""


class _Taken(NamedTuple):
    """What a model takes, and contexts of it."""

    weights: int
    cache: Line
    compute: Line
    accelerator: int


_Make = Callable[[Model, int, int], Context]
"""Makes a context of a model, for so many slots, of so many tokens in all."""


def predict(
    files: Files, settings: LlamaCppSettings, n_slots: int, alive: Callable[[], None]
) -> Demand:
    """Load a model without its weights, make contexts without memory, and add up.

    A draft model counts like the model itself, a projector with what it computes in and
    what is kept of its work.

    Args:
        files: that the settings name.
        settings: as configured.
        n_slots: jobs that are to run at once.
        alive: called now and then.

    Raises:
        LoadError: the model cannot be served so.
    """
    extent: Extent = "dry" if files.draft else "wordless"  # two are compared by words
    with closing(Model(files.model, settings, alive, extent)) as model:
        check_speculation(model, settings)
        seeing = _taken_by(files.projector, model, settings)
        if files.draft is None:
            return _with(seeing, _predict(model, None, settings, n_slots), settings)
        with closing(open_draft(files.draft, settings, alive, "dry")) as draft:
            check_draft_model(draft, model, files.draft.path)
            return _with(seeing, _predict(model, draft, settings, n_slots), settings)


def _taken_by(
    projector: ModelFile | None, model: Model, settings: LlamaCppSettings
) -> Taken | None:
    """Tell what a projector takes, if there is one.

    Raises:
        LoadError: the model does not write, or the projector is not sound.
    """
    if projector is None:
        return None
    if model.use != "generate":
        raise projector.refusal("the model does not write, so it needs none")
    return projector_bytes(projector, uses_accelerator=bool(settings.n_gpu_layers))


def _with(seeing: Taken | None, demand: Demand, settings: LlamaCppSettings) -> Demand:
    if seeing is None:
        return demand
    return replace(
        demand,
        weights=demand.weights + seeing.host,
        own=demand.own + settings.media_cache_mb * 2**20,
        accelerator=demand.accelerator + seeing.accelerator,
    )


def _predict(
    model: Model, draft: Model | None, settings: LlamaCppSettings, n_slots: int
) -> Demand:
    writes = model.use == "generate"
    n_ctx = _wanted_tokens(model, settings)
    slots = n_slots if writes else 1
    if n_ctx * slots > I32_MAX:
        raise LoadError(
            f"n_ctx = {n_ctx}: {slots} slots of it are more than llama.cpp can count"
        )
    own = resident_bytes()  # before the contexts leave anything behind
    taken = [_take(model, _to_write if writes else _to_encode, n_ctx, slots)]
    if draft is not None:
        taken.append(_take(draft, _to_draft, n_ctx, slots))
    return Demand(
        n_ctx=n_ctx,
        is_set=settings.n_ctx is not None,
        has_slots=writes,
        weights=sum(each.weights for each in taken),
        own=own
        + TEXT_BYTES * model.n_left_texts
        + len(taken) * GROWTH_BYTES
        + writes * _grammar_bytes(model),
        cache=sum((each.cache for each in taken), Line()),
        compute=sum((each.compute for each in taken), Line()),
        accelerator=sum(each.accelerator for each in taken),
        pause=writes * settings.pause_mb * 2**20,
        store=writes * settings.prompt_cache_mb * 2**20,
    )


def _grammar_bytes(model: Model) -> int:
    """Tell what grammars take from the first one on, here and where they are tried."""
    per_token = GRAMMAR_TOKEN_BYTES + REHEARSAL_TOKEN_BYTES
    return model.n_vocab * per_token + REHEARSAL_BYTES


def _wanted_tokens(model: Model, settings: LlamaCppSettings) -> int:
    """Tell how long the context of a request is to be: longer ones are no use to encode."""
    wanted = settings.n_ctx or min(DEFAULT_CONTEXT_TOKENS, model.n_ctx_train)
    return wanted if model.use == "generate" else min(wanted, model.n_ctx_train)


def _take(model: Model, make: _Make, n_ctx: int, n_slots: int) -> _Taken:
    points = list(_measure(model, make, n_ctx, n_slots))
    last = points[-1].parts
    return _Taken(
        # The file stays mapped whole, so what is repacked is there twice.
        weights=last.mapped + 2 * last.repacked,
        cache=line_over(
            [Sample(each.n_slots, each.n_tokens, each.parts.cache) for each in points]
        ),
        compute=line_over(
            [
                Sample(
                    each.n_slots,
                    each.n_tokens // each.n_slots,
                    each.parts.compute + each.results,
                )
                for each in points
            ]
        ),
        accelerator=last.accelerator,
    )


def _measure(model: Model, make: _Make, n_ctx: int, n_slots: int) -> Iterator[_Point]:
    """Make contexts of several sizes, up to the one that is wanted if that is usual."""
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


def _to_write(model: Model, n_slots: int, n_tokens: int) -> Context:
    return Context.to_write(model, n_tokens=n_tokens, n_slots=n_slots, n_threads=1)


def _to_draft(model: Model, n_slots: int, n_tokens: int) -> Context:
    return Context.to_draft(model, n_tokens=n_tokens, n_slots=n_slots, n_threads=1)


def _to_encode(model: Model, _n_slots: int, n_tokens: int) -> Context:
    return Context.to_encode(model, n_batch=batch_tokens(n_tokens), n_threads=1)


def _row_bytes(model: Model) -> int:
    """Tell what a row of results takes: llama.cpp has room for scores in any case."""
    n_embd = 0 if model.use == "generate" else model.n_embd
    return _FLOAT_BYTES * (model.n_vocab + n_embd)
