"""Chat templates for peers, of families that some models' files do not carry.

The daemon knows families by name; its peers are given the text.
"""

from typing import Final

TEMPLATES: Final = {
    "gemma3": (
        "{{ bos_token }}{% for turn in messages %}<start_of_turn>"
        "{{ 'model' if turn.role == 'assistant' else turn.role }}\n"
        "{{ turn.content }}<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
    ),
}
"""Family, as ``chat_template`` of a backend has it, to Jinja."""
