"""How families of models write prompts, thoughts and tool calls.

Both the daemon and its workers know all dialects; between them only a name travels.
"""

from collections.abc import Mapping
from typing import Final

from inferd.dialects.chatml import CHATML
from inferd.dialects.deepseek import DEEPSEEK
from inferd.dialects.dialect import Dialect
from inferd.dialects.gemma3 import GEMMA3
from inferd.dialects.gemma4 import GEMMA4
from inferd.dialects.generic import GENERIC
from inferd.dialects.granite import GRANITE
from inferd.dialects.harmony import HARMONY
from inferd.dialects.llama3 import LLAMA3
from inferd.dialects.mistral import MISTRAL
from inferd.dialects.qwen import QWEN
from inferd.dialects.qwen3_coder import QWEN3_CODER

_FAMILIES: Final = (
    *(HARMONY, GEMMA4, GEMMA3, DEEPSEEK, GRANITE, MISTRAL, LLAMA3),
    *(QWEN3_CODER, QWEN, CHATML, GENERIC),
)

DIALECTS: Final[Mapping[str, Dialect]] = {each.name: each for each in _FAMILIES}
"""By name; those with markers of their own come first."""


def choose(architecture: str, template: str) -> Dialect:
    """Find the dialect of a model; the generic one if no other knows it.

    Args:
        architecture: ``general.architecture`` of the model.
        template: the chat template that it carries; empty without one.
    """
    known = (
        each for each in DIALECTS.values() if each.recognises(architecture, template)
    )
    return next(known, GENERIC)
