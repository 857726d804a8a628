"""How to talk to a model whose family nobody knows: its template, and tools as text.

Thoughts and calls are told apart if it writes them as most do. Without a template it is
given ChatML, which more models know than any other way.
"""

from typing import Final

from inferd.dialects import chatml, hermes
from inferd.dialects.dialect import Dialect

GENERIC: Final = Dialect(
    name="generic",
    regions=(hermes.THOUGHT, hermes.CALLS),
    render=chatml.render,
    write_calls=hermes.write_calls,
    recognises=lambda _architecture, _template: False,
    no_thought=hermes.NO_THOUGHT,
    in_plain_turns=hermes.in_plain_turns,
)
