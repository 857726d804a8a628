"""One answer to one client: tokens per second after the first."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, in_turns
from bench.load.scene import Ask
from bench.peers.raw import bench_rate
from bench.prompts import story
from bench.sides import chat_sides
from bench.streams import decode_rate, first_token_s

N_CTX: Final = 1024


@contextmanager
def single_stream(lab: Lab) -> Iterator[Take]:
    """Have every side write the same story."""
    seeds = count()
    n_tokens = lab.sizes.stream_tokens
    with chat_sides(lab, n_slots=1, n_ctx=N_CTX, with_server_py=True) as sides:

        def take(number: int) -> Reading:
            ask = Ask(turns=[("user", story(next(seeds)))], max_tokens=n_tokens)
            answers = in_turns(
                number,
                {name: partial(clients.ask, ask) for name, clients in sides.items()},
            )
            values = {name: decode_rate(answer) for name, answer in answers.items()}
            if lab.has("raw"):
                values["raw"] = bench_rate(lab, n_tokens=n_tokens)
            waits = {name: first_token_s(each) * 1e3 for name, each in answers.items()}
            return Reading(values, {"first_token_ms": waits})

        take(0)
        yield take


SINGLE_STREAM: Final = Measure(
    key="single_stream",
    title="one stream",
    unit="tokens/s",
    is_more_better=True,
    open=single_stream,
    goals=(
        Goal("ratio_raw", at_least=0.97),
        Goal("ratio_peer", at_least=1.08, or_raw=0.97),
    ),
)
