"""What guesses tokens for a model, as configured: checked before anything is loaded."""

from collections.abc import Callable
from pathlib import Path

from inferd.config import LlamaCppSettings
from inferd.fit import Share
from inferd.ipc import Loading
from inferd.worker.backend import LoadError, Report
from inferd.worker.llama.draft_model import DraftModel
from inferd.worker.llama.files import ModelFile
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Model
from inferd.worker.llama.opening import Extent
from inferd.worker.llama.speculation import LookupDrafter, Speculation

__all__ = ["check_draft_model", "check_speculation", "make_speculation", "open_draft"]


def check_speculation(model: Model, settings: LlamaCppSettings) -> None:
    """See that what a model writes can be guessed, if that is configured.

    Raises:
        LoadError: it does not write, or cannot take back what was guessed wrong.
    """
    if settings.speculation == "off":
        return
    reason = ""
    if model.use != "generate":
        reason = "the model does not write"
    elif model.is_recurrent:
        reason = "the model keeps a state that no token can be taken out of again"
    if reason:
        raise LoadError(
            f"speculation = {settings.speculation!r}: {reason}; 'off' is allowed"
        )


def open_draft(
    file: ModelFile,
    settings: LlamaCppSettings,
    alive: Callable[[], None],
    extent: Extent = "whole",
) -> Model:
    """Load a draft model, or all of it but its weights.

    Args:
        file: with it.
        settings: of the model that it guesses for.
        alive: called now and then.
        extent: how much of it.

    Raises:
        LoadError: llama.cpp cannot load it.
    """
    own = LlamaCppSettings(name="draft", n_gpu_layers=settings.n_gpu_layers)
    return Model(file, own, alive, extent)


def check_draft_model(draft: Model, target: Model, path: Path) -> None:
    """See that a model can guess for another.

    Raises:
        LoadError: it has another vocabulary, or cannot take back what it has guessed.
    """
    if draft.use != "generate" or draft.is_recurrent:
        why = "is recurrent" if draft.is_recurrent else "does not write"
        raise _unfit(path, f"it cannot draft, since it {why}")
    kinds = [llama.llama_vocab_type(each.vocab) for each in (draft, target)]
    sizes = [each.n_vocab for each in (draft, target)]
    if kinds[0] != kinds[1] or sizes[0] != sizes[1]:
        raise _unfit(
            path,
            f"it has a vocabulary of {sizes[0]} tokens of kind {kinds[0]}, "
            f"the model one of {sizes[1]} of kind {kinds[1]}; they have to be the same",
        )
    for token in range(target.n_vocab):
        if draft.text(token) != target.text(token):
            raise _unfit(
                path, f"it has another vocabulary than the model, from token {token} on"
            )


def _unfit(path: Path, fault: str) -> LoadError:
    return LoadError.of_file(path, fault, kind="draft_model")


def make_speculation(
    settings: LlamaCppSettings,
    draft_file: ModelFile | None,
    share: Share,
    report: Report,
    *,
    n_threads: int,
) -> Speculation | None:
    """Make what guesses; what there is to check has been.

    Args:
        settings: as configured.
        draft_file: of the draft model, if there is one.
        share: how many answers, and how long.
        report: told how far a draft model is.
        n_threads: to begin with.

    Raises:
        LoadError: llama.cpp cannot load the draft model, or has no memory for a context.
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
