import pytest

from inferd.dialects.families.chatml import CHATML, format_turn, is_chatml, is_qwen
from tests.cases import each_case

PLAIN = "{{ '<|im_start|>' + message.role }}"


@pytest.mark.parametrize(
    "template",
    [PLAIN, PLAIN + '<tool_call>{"name": <function-name>, "arguments": <args-dict>}'],
)
def test_a_model_of_chatml_has_hermes_calls_or_none(template):
    assert CHATML.recognises("llama", template)
    assert is_chatml(template)
    assert not is_qwen(template)


@each_case(
    "template",
    [
        "",
        "{{ message.content }}",
        PLAIN + "<think>",
        PLAIN + "<args-json-object>",
        PLAIN + "<tool_call><function=f><parameter=a>",
        PLAIN + "<|im_sep|>",
        PLAIN + "<|im_middle|>",
        PLAIN + "<end_of_utterance>",
        PLAIN + "List of tools: [",
        PLAIN + '<function name="f">',
    ],
)
def test_a_model_of_more_than_chatml_is_another(template):
    assert not CHATML.recognises("llama", template)


def test_without_a_template_the_architecture_tells():
    assert CHATML.recognises("qwen2", "")
    assert CHATML.recognises("qwen2moe", "")
    assert not CHATML.recognises("qwen3", "")
    assert not CHATML.recognises("qwen2", "{{ message.content }}")


def test_a_turn_stands_between_markers():
    assert format_turn("user", "Hi.\n") == "<|im_start|>user\nHi.\n<|im_end|>\n"
