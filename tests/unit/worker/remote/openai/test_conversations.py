"""The golden conversations in the form of OpenAI's API.

The answers were recorded: that of ``overflow`` from llama-server (llama.cpp of llama-cpp-python
0.3.36), the others from this project's bridge before a scripted backend, which is held to no
schema, so that the request of ``structure`` was sent without one. Their counts of tokens are
replaced by those of all kinds.
"""

from pathlib import Path

from inferd.worker.remote.openai.api import OPENAI_API
from tests.unit.worker.remote.conversations import CONVERSATIONS, replay
from tests.unit.worker.remote.openai.jobs import settings

EXCHANGES = Path(__file__).parent / "exchanges"


def test_the_golden_conversations_come_to_the_same_as_with_every_kind():
    configured = settings(tools=True, thinking=True, structure=True)
    for name, conversation in CONVERSATIONS.items():
        found = replay(OPENAI_API, configured, name, EXCHANGES)
        assert found == conversation.outcome, name
