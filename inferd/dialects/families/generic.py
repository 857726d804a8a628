"""Dialect of models of unknown families: their own template, and tools as text.

Thoughts and calls are parsed if they have the most common format. Without a template,
prompts are ChatML, the most widespread format.
"""

from typing import Final

from inferd.dialects.dialect import Dialect
from inferd.dialects.families import chatml, hermes

GENERIC: Final = Dialect(
    name="generic",
    regions=(hermes.THOUGHT, hermes.CALLS),
    render=chatml.render,
    write_calls=hermes.write_calls,
    recognises=lambda _architecture, _template: False,
    close_thought=hermes.CLOSE_THOUGHT,
    tools_as_text=hermes.tools_as_text,
)
