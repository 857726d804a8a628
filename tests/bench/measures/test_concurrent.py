import pytest

from bench.load.scene import Answer
from bench.measures.concurrent import prompt_tokens, raw_rate, stories

TOLD = {"pl": 8, "tg": 50, "t_pp": 2.0, "t_tg": 8.0, "t": 10.0}


@pytest.mark.parametrize(("is_whole", "rate"), [(False, 50), (True, 40)])
def test_raw_llama_cpp_is_timed_as_the_servers_are(is_whole, rate):
    assert raw_rate(TOLD, is_whole=is_whole) == rate


def test_raw_prompts_are_as_long_as_the_first_side_that_counts_says():
    def answers(*counts):
        return [
            Answer(sent_at=0, times=[], lengths=[], text="", n_prompt=count)
            for count in counts
        ]

    assert prompt_tokens([answers(0, 0), answers(40, 44), answers(9)]) == 42
    assert prompt_tokens([answers(0)]) == 0


def test_stories_differ():
    asked = stories(range(8), 9)
    assert len({ask.turns[0][1] for ask in asked}) == 8
