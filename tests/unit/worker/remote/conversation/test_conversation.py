import pytest

from inferd.backend.job import PastCall, Turn
from inferd.worker.backend import RefusedError
from inferd.worker.remote.conversation.refusals import explicit
from inferd.worker.remote.conversation.turns import (
    CallNumbers,
    SplitTurns,
    arguments_of,
    split_images,
)
from tests.unit.worker.remote.openai.jobs import job, sampling


def test_system_messages_at_the_beginning_are_kept_apart():
    turns = [Turn("system", "a"), Turn("system", "b"), Turn("user", "c")]
    late = Turn("system", "d")
    split = SplitTurns(job(turns=[*turns, late]))
    assert (split.system, split.turns) == (["a", "b"], [turns[2], late])


def test_a_result_belongs_to_the_last_call_with_its_id():
    calls = CallNumbers()
    for name in ("one", "two"):
        calls.add(PastCall(id="c", name=name, arguments="{}"))
    assert calls.find(Turn("tool", "x", call_id="c")) == (1, "two")
    with pytest.raises(RefusedError, match="belongs to no call"):
        calls.find(Turn("tool", "x", call_id="d"))


def test_images_stand_where_their_markers_were():
    images = iter((b"1", b"2", b"3"))
    marked = job(marker="#")
    assert [*split_images(marked, "#a##", images)] == [b"1", "a", b"2", b"3"]
    assert [*split_images(job(), "#", images)] == ["#"]


def test_arguments_of_earlier_calls_are_objects():
    for text, expected in (("", b"{}"), (' {"a": 1}', b'{"a": 1}')):
        assert (
            bytes(arguments_of(PastCall(id="c", name="n", arguments=text))) == expected
        )
    for text in ("[]", "{", "[" * 100_000, '"a"'):
        with pytest.raises(RefusedError, match="no JSON object"):
            arguments_of(PastCall(id="c", name="n", arguments=text))


def test_the_protocols_defaults_are_not_asked_for():
    asked = job(sampling=sampling(temperature=0.0, top_p=0.95, top_k=64))
    found = [explicit(asked, field) for field in ("temperature", "top_p", "top_k")]
    assert found == [0.0, None, None]
