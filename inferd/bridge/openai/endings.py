"""Why an answer ended, in OpenAI's words."""

from collections.abc import Mapping
from typing import Final

FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""By the daemon's reason."""
