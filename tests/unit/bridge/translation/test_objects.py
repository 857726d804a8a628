import json

from inferd.bridge.anthropic.request import ask_message
from inferd.bridge.ollama.generate import ask_generate
from inferd.bridge.openai.chat_request import ask_chat
from inferd.bridge.openai.responses.request import ask_response
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, generated

HI = {"messages": [{"role": "user", "content": "hi"}]}


@each_case(
    ("ask", "fields"),
    [
        (ask_chat, {**HI, "top_p": 0}),
        (ask_response, {"input": "hi", "top_p": 0}),
        (ask_message, {**HI, "max_tokens": 9, "top_p": 0}),
        (ask_generate, {"model": "m", "prompt": "hi", "options": {"top_p": 0}}),
    ],
)
def test_a_top_p_of_0_leaves_the_likeliest_token_as_the_daemon_writes_it(ask, fields):
    top_p = generated(ask(json.dumps(fields).encode(), ASKED)).top_p
    assert top_p is not None
    assert 0 < top_p < 0.001
