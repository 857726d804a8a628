from inferd.server.history.rate import tokens_per_second
from tests.cases import each_case


@each_case(
    ("n_tokens", "n_first", "decode_s", "rate"),
    [
        (11, 1, 2.0, 5.0),
        (11, 0, 2.0, 5.0),  # an engine that tells no tokens of the first batch
        (11, 6, 1.0, 5.0),
        (20, 20, 0.000344, 0.0),
        (1, 1, 0.0, 0.0),
        (5, 1, 0.0, 0.0),
    ],
)
def test_the_tokens_that_came_first_took_no_time(n_tokens, n_first, decode_s, rate):
    assert tokens_per_second(n_tokens, n_first, decode_s) == rate
