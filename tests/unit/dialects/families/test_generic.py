import pytest

from inferd.dialects.families.generic import GENERIC


@pytest.mark.parametrize("template", ["", "<|im_start|>", "anything"])
def test_no_model_is_known_to_be_of_no_family(template):
    assert not GENERIC.recognises("llama", template)


def test_it_tells_thoughts_and_calls_apart():
    assert [region.holds for region in GENERIC.regions] == ["thought", "calls"]
    assert GENERIC.tools_as_text is not None
