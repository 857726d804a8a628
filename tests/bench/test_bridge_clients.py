import pytest

from bench.bridge_clients import ask, n_lost
from bench.load.scene import Answer


@pytest.mark.parametrize(
    ("text", "n_tokens", "lost"), [("xxx", 3, 0), ("xx", 3, 1), ("xxx", 2, 1)]
)
def test_an_answer_counts_as_lost_unless_it_is_whole(text, n_tokens, lost):
    whole = Answer(sent_at=0, times=[], lengths=[], text="xxx", n_tokens=3)
    other = Answer(sent_at=0, times=[], lengths=[], text=text, n_tokens=n_tokens)
    assert n_lost([whole, other], [ask(3), ask(3)]) == lost
