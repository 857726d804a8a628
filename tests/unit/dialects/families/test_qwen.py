import pytest

from inferd.dialects.families.qwen import QWEN

CHATML = "{{ '<|im_start|>' + message.role }}"


@pytest.mark.parametrize("mark", ["<think>", '"arguments": <args-json-object>}'])
def test_its_templates_have_thoughts_or_its_words_for_tools(mark):
    assert QWEN.recognises("llama", CHATML + mark)
    assert not QWEN.recognises("llama", mark)
    assert not QWEN.recognises("llama", CHATML + mark + "<function=")
    assert not QWEN.recognises("qwen3", CHATML)


def test_without_a_template_the_architecture_tells():
    assert QWEN.recognises("qwen3moe", "")
    assert QWEN.recognises("smollm3", "")
    assert not QWEN.recognises("qwen35", "")
    assert not QWEN.recognises("llama", "")


@pytest.mark.parametrize("end", ["<think>\n", "<think>"])
def test_a_thought_that_a_template_opens_can_be_closed(end):
    assert QWEN.open_thought(f"<|im_start|>assistant\n{end}")
    assert not QWEN.open_thought(f"<|im_start|>assistant\n{end}{QWEN.close_thought}")
