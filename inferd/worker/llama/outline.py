"""What a model can do, from the headers of its files: no weights are loaded."""

from pathlib import Path

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Loading
from inferd.memory.plan import MemoryShare
from inferd.worker.backend import LoadReporter
from inferd.worker.llama.encoder import encoder_capabilities
from inferd.worker.llama.generator import generator_capabilities
from inferd.worker.llama.gguf.files import ModelFile, ModelFiles
from inferd.worker.llama.library.mtmd import load_mtmd
from inferd.worker.llama.model.chat_template import load_prompts
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.media import Modalities

_SAMPLE_RATE = 16_000
"""Sample rate in Hz that all known projectors of audio take; the loaded projector tells its
own."""


def open_outline(
    file: ModelFile, settings: LlamaCppSettings, report: LoadReporter
) -> LlamaModel:
    """Load a model's vocabulary without its weights.

    Raises:
        LoadError: the library refuses the file.
    """
    mapping = Loading(phase="mmap", path=str(file.path))
    report(mapping)
    return LlamaModel(file, settings, lambda: report(mapping), "no_weights")


def outline_capabilities(
    model: LlamaModel,
    files: ModelFiles,
    settings: LlamaCppSettings,
    share: MemoryShare,
) -> BackendCapabilities:
    """Return the capabilities that the model would have with a share of memory.

    Raises:
        LoadError: its chat template cannot be used.
    """
    if model.use != "generate":
        return encoder_capabilities(model, share.n_ctx)
    prompts, _ = load_prompts(model, Path(settings.model), settings.chat_template)
    return generator_capabilities(
        model,
        prompts,
        _modalities(files.projector),
        n_ctx=share.n_ctx,
        n_slots=share.n_slots,
    )


def _modalities(projector: ModelFile | None) -> Modalities:
    """Read the kinds of media that a projector accepts, if there is one."""
    if projector is None:
        return Modalities()
    capabilities = load_mtmd().mtmd_get_cap_from_file(projector.library_paths[0])
    return Modalities(
        bool(capabilities.inp_vision),
        _SAMPLE_RATE if capabilities.inp_audio else 0,
    )
