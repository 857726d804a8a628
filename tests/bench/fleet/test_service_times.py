import math
from collections.abc import Sequence

from bench.fleet.__main__ import draw, point
from bench.fleet.service_times import SLOTS, fitted
from bench.load.scene import Answer


def answer(times: Sequence[float], n_prompt: int = 10) -> Answer:
    return Answer(
        sent_at=0.0,
        times=[*times],
        lengths=[1] * len(times),
        text="",
        n_prompt=n_prompt,
        n_tokens=len(times),
    )


def written(step_s: float) -> Answer:
    return answer([1 + step_s * number for number in range(11)])


def test_times_are_lines_through_what_was_measured():
    service = fitted(
        short=[answer([0.3], 100)],
        long=[answer([1.1], 500)],
        alone=[written(0.010)],
        together=[[written(0.025)] * SLOTS],
    )
    wanted = {
        "prompt_token_s": 0.002,
        "request_s": 0.1,
        "step_s": 0.005,
        "step_each_s": 0.005,
    }
    for name, seconds in wanted.items():
        assert math.isclose(getattr(service, name), seconds, rel_tol=1e-6), name


def test_a_point_is_drawn_with_its_line(tmp_path):
    service = fitted(
        short=[answer([0.3], 100)],
        long=[answer([1.1], 500)],
        alone=[written(0.010)],
        together=[[written(0.025)] * SLOTS],
    )
    found = [point("by prefix", 1, users, service) for users in (1, 2)]
    assert all(each.cached > 0.9 for each in found)
    draw(found, tmp_path / "a.svg")
    assert "1 machine" in (tmp_path / "a.svg").read_text()
