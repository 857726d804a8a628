import msgspec
import pytest
import trio

from inferd.backend.job import GenerateJob, Sampling, Structure, Turn
from inferd.engine.prepare.preparer import Preparer
from inferd.errors import InvalidRequestError

pytestmark = pytest.mark.slow

ADA, BEN, STRANGER, OTHER_STRANGER = 1000, 1001, -2, -3
FACTS = msgspec.msgpack.encode({"template": None, "dialect": "chatml", "special": {}})
WORDS = msgspec.msgpack.encode(
    {
        "token_bytes": [*(bytes([each]) for each in range(256)), b"<end>"],
        "special": [256],
        "ends": [256],
    }
)


async def words():
    return WORDS


def asked(owner, pattern="(secret|words)+", **fields):
    return GenerateJob(
        owner=owner,
        turns=[Turn("user", "hi")],
        structure=Structure(kind="regex", source=pattern),
        max_tokens=0,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        **fields,
    )


@pytest.fixture
async def preparer():
    preparer = Preparer(FACTS, words, start_timeout_s=60)
    yield preparer
    await preparer.aclose()


async def is_tried(preparer, job):
    """Tell whether a job's grammar is compiled before it is written."""
    await preparer.render(job)
    return bool(preparer._process.grammar_field)


async def test_what_one_user_has_used_is_tried_anew_for_each_other(preparer):
    with trio.fail_after(60):
        assert await is_tried(preparer, asked(ADA))
        assert not await is_tried(preparer, asked(ADA))
        for other in (BEN, STRANGER, OTHER_STRANGER):
            assert await is_tried(preparer, asked(other))
            assert not await is_tried(preparer, asked(other))


async def test_each_job_has_a_process_of_its_own_with_nothing_of_the_last(preparer):
    with trio.fail_after(60):
        await preparer.render(asked(ADA))
        process = preparer._process
        path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        seen: set[str] = set()
        for owner in (ADA, BEN, ADA):
            while not (new := {*(await path.read_text()).split()} - seen):
                await trio.lowlevel.checkpoint()
            seen |= new
            await preparer.render(asked(owner))
        assert preparer._process is process


async def test_what_others_do_to_a_process_is_no_users_loss(preparer):
    with trio.fail_after(60):
        await preparer.render(asked(ADA))
        with pytest.raises(InvalidRequestError):
            await preparer.render(asked(BEN, "("))
        assert not await is_tried(preparer, asked(ADA))
