"""Bounds of rendering prompts and translating schemas, tools and grammars."""

from typing import Final

from inferd.limits.protocol import MAX_FRAME_BYTES

TRANSLATION_STEPS: Final = 500_000
"""Nodes visited and characters written that any translation may take. F-11."""

TRANSLATION_STEPS_PER_BYTE: Final = 16
"""Further steps for each byte of the translated input: ordinary schemas are read three times
and written twice. F-11."""

PROMPT_BASE_CHARS: Final = 16_384
"""Characters of a prompt that do not come from the request: the template's own text, usually
some 2,000, and several times as many with a long system prompt. F-11."""

PROMPT_CHARS_PER_CHAR: Final = 8
"""Characters of a prompt for each character of the request: indented JSON usually takes three
times as many, control characters six times. F-11."""

PROMPT_ITEM_CHARS: Final = 24
"""Characters that a message, a call or a tool counts for beside its texts: the shortest takes
more of a request. F-11."""

CALL_PARSE_STEPS: Final = 100_000
"""Steps for parsing one tool call of a model by its tool's schema, on the daemon's event
loop: 0.1 s at worst. F-11."""

PLAIN_TURNS: Final = 64
"""Messages of a prompt that a worker renders itself; longer conversations are rendered in a
process that can be killed. Quadratic work on so few messages is negligible. F-11."""

PLAIN_CHARS: Final = 64 * 1024
"""Characters of a prompt that a worker renders itself, in some milliseconds. F-11."""

TEMPLATE_OUTPUT_CHARS: Final = MAX_FRAME_BYTES
"""Characters that a chat template may produce: no request is larger than a frame."""

TEMPLATE_NUMBER_BITS: Final = 4096
"""Bits of the integers that a chat template may multiply, divide or raise to a power, and of
the result: templates only count messages. F-18."""

SPELLED_SPECIAL_TOKENS: Final = 65_536
"""Special tokens that the texts of one request may contain as text: each one costs little, but
a request as long as a frame could hold millions. F-22."""

SPECIAL_TOKENS_PER_PIECE: Final = 256
"""Special tokens in one piece of a prompt that is tokenised at once: llama.cpp takes quadratic
time in them, so that 65,536 short messages would take a minute. F-1."""
