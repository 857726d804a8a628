"""Set up speculation as configured; checked before weights are loaded."""

from collections.abc import Callable
from pathlib import Path

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Loading
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import LoadError, LoadReporter
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.library.binding import llama
from inferd.worker.llama.model.load import LoadExtent
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.speculation.draft_model import DraftModel
from inferd.worker.llama.speculation.drafter import LookupDrafter, Speculation

__all__ = ["check_draft_model", "check_speculation", "make_speculation", "open_draft"]


def check_speculation(model: LlamaModel, settings: LlamaCppSettings) -> None:
    """Check that a model supports speculation, if that is configured.

    Raises:
        LoadError: it does not generate text, or cannot remove rejected drafts.
    """
    if settings.speculation == "off":
        return
    reason = ""
    if model.use != "generate":
        reason = "the model does not generate text"
    elif model.is_recurrent:
        reason = "the model has a recurrent state, from which no token can be removed"
    if reason:
        raise LoadError(
            f"speculation = {settings.speculation!r}: {reason}; 'off' is allowed"
        )


def open_draft(
    file: ModelFile,
    settings: LlamaCppSettings,
    alive: Callable[[], None],
    extent: LoadExtent = "full",
) -> LlamaModel:
    """Load a draft model.

    Args:
        file: the draft model's file.
        settings: of the main model.
        alive: called regularly, as a sign of life.
        extent: the parts to load.

    Raises:
        LoadError: llama.cpp cannot load it.
    """
    own = LlamaCppSettings(
        name="draft",
        n_gpu_layers=settings.n_gpu_layers,
        main_gpu=settings.main_gpu,
        tensor_split=settings.tensor_split,
    )
    return LlamaModel(file, own, alive, extent)


def check_draft_model(draft: LlamaModel, target: LlamaModel, path: Path) -> None:
    """Check that a model can draft for another.

    Raises:
        LoadError: its vocabulary differs, or it cannot remove rejected drafts.
    """
    if draft.use != "generate" or draft.is_recurrent:
        why = "is recurrent" if draft.is_recurrent else "does not generate text"
        raise _draft_error(path, f"it cannot draft, since it {why}")
    kinds = [llama.llama_vocab_type(each.vocab) for each in (draft, target)]
    sizes = [each.n_vocab for each in (draft, target)]
    if kinds[0] != kinds[1] or sizes[0] != sizes[1]:
        raise _draft_error(
            path,
            f"it has a vocabulary of {sizes[0]} tokens of kind {kinds[0]}, "
            f"the model one of {sizes[1]} of kind {kinds[1]}; they have to be the same",
        )
    for token in range(target.n_vocab):
        if draft.text(token) != target.text(token):
            raise _draft_error(
                path, f"it has another vocabulary than the model, from token {token} on"
            )


def _draft_error(path: Path, fault: str) -> LoadError:
    return LoadError.of_file(path, fault, kind="draft_model")


def make_speculation(
    settings: LlamaCppSettings,
    draft_file: ModelFile | None,
    share: MemoryShare,
    report: LoadReporter,
    *,
    n_threads: int,
) -> Speculation | None:
    """Create the configured speculation, after the checks.

    Args:
        settings: as configured.
        draft_file: file of the draft model, if there is one.
        share: number of slots and their tokens.
        report: called while the draft model loads.
        n_threads: initial number of threads.

    Raises:
        LoadError: llama.cpp cannot load the draft model, or memory is insufficient.
    """
    if settings.speculation == "off":
        return None
    if draft_file is None:
        return Speculation(LookupDrafter(), settings.draft_max)
    mapping = Loading(phase="mmap", path=str(draft_file.path))
    report(mapping)
    draft = open_draft(draft_file, settings, lambda: report(mapping))
    drafter = DraftModel(
        draft, n_ctx=share.n_ctx, n_slots=share.n_slots, n_threads=n_threads
    )
    return Speculation(drafter, settings.draft_max)
