"""Load a model's chat template and choose its dialect."""

from pathlib import Path
from typing import Final

from inferd.config.choices import Family
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.prompt.template import TemplateError
from inferd.dialects.registry import (
    DIALECTS,
    dialect_of,
    has_format,
    is_template_alias,
)
from inferd.limits.worker import TEMPLATE_MEMORY_BYTES
from inferd.worker.backend import LoadError
from inferd.worker.llama.model.prompt_tokens import single_token_texts
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.prepare.model_info import PromptFormat, prompts_of
from inferd.worker.process_memory import GrowthLimit

__all__ = ["load_prompts"]

_NAME_CHARS: Final = 40
_HINT: Final = "chat_template in its [[backend]] can name the family that it follows"


def load_prompts(
    model: LlamaModel, path: Path, family: Family | None
) -> tuple[PromptRenderer, PromptFormat]:
    """Load a model's chat template, and its family's dialect.

    Args:
        model: the model.
        path: path of its file.
        family: as configured; ``None`` to detect it.

    Returns:
        The renderer of its prompts, and the format from which the preparer process builds
        the same one.

    Raises:
        LoadError: the template does not compile or is missing, and no family is configured.
    """
    prompt_format = _prompt_format_of(model, path, family)
    try:
        with GrowthLimit(TEMPLATE_MEMORY_BYTES):
            prompts = prompts_of(prompt_format)
    except TemplateError as error:
        raise LoadError.of_file(path, str(error)) from error
    if not prompts.has_usable_template and not family:
        raise LoadError.of_file(
            path, f"its chat template leaves out the user's messages; {_HINT}"
        )
    return prompts, prompt_format


def _prompt_format_of(
    model: LlamaModel, path: Path, family: Family | None
) -> PromptFormat:
    source = model.chat_template or ""
    name = source if is_template_alias(source) else ""
    if not family and not has_format(source):
        but = f" but the name {name[:_NAME_CHARS]!r}" if name else ""
        raise LoadError.of_file(path, f"it has no chat template{but}; {_HINT}")
    found = dialect_of(model.architecture, source)
    dialect = DIALECTS[family] if family else found
    is_kept = source and not name and dialect in (found, GENERIC)
    texts = single_token_texts(model)
    return PromptFormat(
        template=source if is_kept else None,
        dialect=dialect.name,
        special=model.special_tokens(),
        always=texts.always,
        where_used=texts.where_used,
    )
