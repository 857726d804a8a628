"""Find out how a model wants its prompts."""

from pathlib import Path
from typing import Final

from inferd.choices import Family
from inferd.dialects.generic import GENERIC
from inferd.dialects.named import NAMED, is_name
from inferd.dialects.prompts import Prompts
from inferd.dialects.registry import DIALECTS, choose
from inferd.dialects.template import TemplateError
from inferd.worker.backend import LoadError
from inferd.worker.limits import TEMPLATE_MEMORY_BYTES
from inferd.worker.llama.facts import Facts, prompts_of
from inferd.worker.llama.model import Model
from inferd.worker.llama.prompt import token_texts
from inferd.worker.memory import BoundedGrowth

__all__ = ["load_prompts"]

_NAME_CHARS: Final = 40
_PINNING: Final = "chat_template in its [[backend]] can name the family that it follows"


def load_prompts(
    model: Model, path: Path, family: Family | None
) -> tuple[Prompts, Facts]:
    """Load a model's chat template, and its family's dialect.

    Args:
        model: that reads them.
        path: of its file.
        family: as configured; ``None`` to find out.

    Returns:
        What writes its prompts, and what another process makes the same of.

    Raises:
        LoadError: its template does not compile, or nothing tells.
    """
    facts = _facts_of(model, path, family)
    try:
        with BoundedGrowth(TEMPLATE_MEMORY_BYTES):
            prompts = prompts_of(facts)
    except TemplateError as error:
        raise LoadError.of_file(path, str(error)) from error
    if not prompts.is_sound and not family:
        raise LoadError.of_file(
            path, f"its chat template leaves out what a user says; {_PINNING}"
        )
    return prompts, facts


def _facts_of(model: Model, path: Path, family: Family | None) -> Facts:
    source = model.chat_template or ""
    name = source if is_name(source) else ""
    if not family and (name or not source) and name not in NAMED:
        but = f" but the name {name[:_NAME_CHARS]!r}" if name else ""
        raise LoadError.of_file(path, f"it has no chat template{but}; {_PINNING}")
    found = NAMED.get(name) or choose(model.architecture, "" if name else source)
    dialect = DIALECTS[family] if family else found
    is_kept = source and not name and dialect in (found, GENERIC)
    texts = token_texts(model)
    return Facts(
        template=source if is_kept else None,
        dialect=dialect.name,
        special=model.special_tokens(),
        always=texts.always,
        where_used=texts.where_used,
    )
