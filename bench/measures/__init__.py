"""What is measured: one module a figure, and those of growth."""

from typing import Final

from bench.lab import Measure
from bench.measures.cold_prefill import COLD_PREFILL
from bench.measures.concurrent import CONCURRENT
from bench.measures.embeddings import EMBED, EMBED_ONE
from bench.measures.json_schema import JSON_SCHEMA
from bench.measures.memory import RSS, RSS_ALONE
from bench.measures.ready import READY
from bench.measures.single_stream import SINGLE_STREAM
from bench.measures.speech import SPEECH, SPEECH_WORDS
from bench.measures.stall import STALL
from bench.measures.through_bridge import BRIDGE_EIGHT, BRIDGE_FIRST, BRIDGE_ONE
from bench.measures.through_client import THROUGH_CLIENT
from bench.measures.through_remote import THROUGH_REMOTE
from bench.measures.warm_prefix import WARM_PREFIX

CHAT: Final[tuple[Measure, ...]] = (
    SINGLE_STREAM,
    CONCURRENT,
    WARM_PREFIX,
    STALL,
    COLD_PREFILL,
    JSON_SCHEMA,
    BRIDGE_ONE,
    BRIDGE_EIGHT,
    BRIDGE_FIRST,
    *THROUGH_CLIENT,
    READY,
    RSS,
)
"""Of each model that writes."""
EMBEDDING: Final[tuple[Measure, ...]] = (EMBED, EMBED_ONE)
"""Of the embedded model for it."""
SPOKEN: Final[tuple[Measure, ...]] = (SPEECH, SPEECH_WORDS)
"""Of the embedded models for speech."""
WITHOUT_MODEL: Final[tuple[Measure, ...]] = (RSS_ALONE, *THROUGH_REMOTE)
KEYS: Final = tuple(
    dict.fromkeys(each.key for each in (*CHAT, *EMBEDDING, *SPOKEN, *WITHOUT_MODEL))
)
