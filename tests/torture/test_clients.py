import json

import pytest
import trio

from torture.clients import Ledger, ask, essence, text, typed, vectors

QUESTION = text("hello")
TOKEN = {"type": "token", "id": "r", "content": "x"}
DONE = {"type": "done", "id": "r", "stop_reason": "end"}
FULL = {"type": "error", "id": "r", "code": "queue_full"}
BUG = {"type": "error", "id": "r", "code": "internal"}


@pytest.fixture
def told(short_dir):
    """A daemon that answers anything with the same frames; what a client makes of it."""

    async def converse(*frames, stays=False, patience_s=5.0):
        async def serve(stream):
            async with stream:
                await stream.receive_some()
                for frame in frames:
                    await stream.send_all(json.dumps(frame).encode() + b"\n")
                if stays:
                    await trio.sleep_forever()

        sock = trio.socket.socket(trio.socket.AF_UNIX)
        await sock.bind(str(short_dir / QUESTION.leaf))
        sock.listen()
        ledger = Ledger({QUESTION: "x [end]"})
        async with trio.open_nursery() as nursery:
            listeners = [trio.SocketListener(sock)]
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            answer = await ask(short_dir, QUESTION, "r", patience_s=patience_s)
            ledger.enter(QUESTION, answer)
            nursery.cancel_scope.cancel()
        return ledger

    return converse


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([TOKEN, DONE], "done"),
        ([TOKEN], "lost"),
        ([], "lost"),
        ([TOKEN, DONE, DONE], "doubled"),
        ([TOKEN, DONE, TOKEN], "doubled"),
        ([FULL, DONE], "doubled"),
        ([TOKEN, TOKEN, DONE], "wrong"),
        ([FULL], "queue_full"),
    ],
)
async def test_each_misfortune_is_counted_as_what_it_is(told, frames, kind):
    counts = (await told(*frames)).counts()
    fates = {name for name, n in counts.items() if n} - {"asked"}
    assert fates - {"done"} == {kind} - {"done"}
    assert counts["asked"] == 1


async def test_one_that_never_ends_hangs(told, autojump_clock):
    counts = (await told(TOKEN, stays=True)).counts()
    assert counts["hung"] == 1


async def test_one_that_nobody_takes_is_refused(short_dir):
    ledger = Ledger()
    ledger.enter(QUESTION, await ask(short_dir, QUESTION, "r"))
    assert ledger.n_refused == 1
    assert ledger.problems() == ["1 refused"]
    assert ledger.problems(refused_too=False) == []


async def test_only_errors_that_are_allowed_are_no_problem(told):
    ledger = await told(FULL)
    assert ledger.problems("queue_full") == []
    assert ledger.problems("internal") == ["1 queue_full"]


async def test_a_problem_comes_with_the_first_of_its_kind(told):
    problems = (await told(TOKEN)).problems()
    assert problems[0] == "1 lost"
    assert "r ended in" in problems[1]


@pytest.mark.parametrize(
    ("frames", "wanted"),
    [
        ([TOKEN, TOKEN, DONE], "xx [end]"),
        ([DONE | {"timing": {"total_ms": 1}}], " [end]"),
        ([{"type": "frame", "block": {"type": "text", "delta": "y"}}], "y"),
        ([{"type": "embeddings", "embeddings": [[0.10001, 2.00004]]}], "[[0.1, 2.0]]"),
        ([{"type": "rerank", "results": []}], "[]"),
        ([FULL], ""),
    ],
)
def test_the_essence_is_what_is_the_same_each_time(frames, wanted):
    assert essence(frames) == wanted


@pytest.mark.parametrize("question", [QUESTION, typed("hello"), vectors("a", "b")])
def test_a_question_is_a_line_with_the_id_it_is_given(question):
    line = question.to_line("r7")
    assert line.endswith(b"\n")
    assert json.loads(line)["id"] == "r7"
