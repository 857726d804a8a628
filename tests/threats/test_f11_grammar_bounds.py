import pytest

from inferd.backend import BackendCapabilities
from inferd.limits import GRAMMAR_MAX_ALTERNATIVES, GRAMMAR_MAX_BYTES
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import House


async def answer_to(grammar: str):
    """Ask with a grammar; give the last frame, and whether the backend saw it."""
    backend = ScriptedBackend(capabilities=BackendCapabilities(structure=True))
    async with House(backend).opened() as house, house.connect() as client:
        return (await client.ask("r", grammar=grammar))[-1], backend.counts.asked == 1


def test_the_bounds_are_those_of_the_wire():
    assert (GRAMMAR_MAX_BYTES, GRAMMAR_MAX_ALTERNATIVES) == (64 * 1024, 4096)


@pytest.mark.parametrize(
    "grammar",
    [
        "x" * (GRAMMAR_MAX_BYTES + 1),
        "é" * (GRAMMAR_MAX_BYTES // 2 + 1),
        "|" * (GRAMMAR_MAX_ALTERNATIVES + 1),
    ],
)
async def test_a_grammar_over_a_bound_never_reaches_a_backend(grammar, autojump_clock):
    frame, was_seen = await answer_to(grammar)
    assert (frame["id"], frame["code"]) == ("r", "invalid_request")
    assert "grammar" in frame["message"]
    assert not was_seen


@pytest.mark.parametrize(
    "grammar", ["x" * GRAMMAR_MAX_BYTES, "|" * GRAMMAR_MAX_ALTERNATIVES]
)
async def test_a_grammar_at_a_bound_does(grammar, autojump_clock):
    frame, was_seen = await answer_to(grammar)
    assert frame["type"] == "done"
    assert was_seen
