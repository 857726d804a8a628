import json
from pathlib import Path

import pytest
import structlog.testing
import trio
from msgspec.structs import replace

from inferd import surfaces
from inferd.admission.budget import DAY_S, BudgetLimits, BudgetUse
from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.openai import OpenAiSettings
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.server.budgets.budgets import Budgets
from inferd.server.budgets.file import BudgetFileError, read_uses, write_uses
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext

NOON = 20_000 * DAY_S + DAY_S / 2
JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=20,
    sampling=Sampling(temperature=None, top_p=None, top_k=None, seed=1),
)


FAR = OpenAiSettings(name="far", base_url="http://127.0.0.1:1", model="m")


def make(path: Path, **bounds: int) -> Budgets:
    budgets = Budgets(path / "budgets.json", lambda: NOON)
    far = replace(FAR, **bounds)
    budgets.configure([far, MockSettings(name="near")])
    return budgets


def begin() -> RequestContext:
    peer = Peer(pid=17, uid=1000, gid=100)
    return RequestContext(peer, surfaces.EMBED, "r", 0.0, input_tokens=10)


def refused(budgets: Budgets) -> int | None:
    with pytest.raises(BackendUnavailableError) as refusal:
        budgets.reserving("far", JOB, begin()).__enter__()
    return refusal.value.retry_after_ms


def test_tokens_are_reserved_while_a_request_runs_and_settled_by_its_usage(tmp_path):
    budgets = make(tmp_path, max_tokens_per_day=100)
    context = begin()
    with budgets.reserving("far", JOB, context):
        assert budgets.left("far") == BudgetLimits(None, 70)
        context.counted_tokens = 12  # by the remote
    assert budgets.left("far") == BudgetLimits(None, 88)
    context = begin()
    with pytest.raises(BackendUnavailableError), budgets.reserving("far", JOB, context):
        context.output.n_tokens = 3  # then it broke off: with its prompt that is 13
        raise BackendUnavailableError("reset")
    assert budgets.left("far") == BudgetLimits(None, 75)
    with budgets.reserving("near", JOB, begin()):
        pass
    assert [*budgets.gauges()] == [("far", "tokens", 75)]


def test_a_request_that_does_not_fit_is_refused_with_the_time_until_it_does(tmp_path):
    budgets = make(tmp_path, max_tokens_per_day=40, max_requests_per_minute=2)
    with structlog.testing.capture_logs() as logged:
        with budgets.reserving("far", JOB, begin()):
            assert [refused(budgets) for _ in range(2)] == [1000, 1000]
        budgets.check("far")
        large = begin()
        large.input_tokens = 21
        with (
            pytest.raises(InvalidRequestError, match="41 tokens"),
            budgets.reserving("far", JOB, large),
        ):
            raise AssertionError
        with budgets.reserving("far", JOB, begin()):
            with pytest.raises(BackendUnavailableError, match="per_minute is 2"):
                budgets.check("far")
            assert refused(budgets) == 60_000
            assert budgets.is_spent("far")
    assert [each["event"] for each in logged] == ["budget.spent"]


async def test_what_was_used_is_kept_and_a_restart_goes_on_with_it(
    tmp_path,
):
    budgets = make(tmp_path, max_tokens_per_day=100)
    path = tmp_path / "budgets.json"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budgets.run)
        with budgets.reserving("far", JOB, begin()):
            while not path.exists():  # noqa: ASYNC110  # a thread writes it
                await trio.sleep(0.001)
            kept = read_uses(path)["far"]
            assert (kept.tokens, kept.requests) == (30, 1)  # if it were killed now
        nursery.cancel_scope.cancel()
    assert read_uses(path)["far"].tokens == 10
    assert path.stat().st_mode & 0o777 == 0o600
    assert make(tmp_path, max_tokens_per_day=100).left("far") == BudgetLimits(None, 90)
    budgets.configure([])  # a reload that removes it, and one that brings it back
    assert budgets.left("far") is None
    budgets.configure([replace(FAR, max_tokens_per_day=50)])
    assert budgets.left("far") == BudgetLimits(None, 40)


def test_a_file_that_is_none_is_told_and_replaced(tmp_path):
    path = tmp_path / "budgets.json"
    ahead = json.dumps({"far": {"day": 2**40, "tokens": 9}})
    for content in ("", "{", "[]", '{"far": 1}', '{"far": {"tokens": -1}}', ahead):
        path.write_text(content)
        path.chmod(0o600)
        with structlog.testing.capture_logs() as logged:
            budgets = make(tmp_path, max_tokens_per_day=100)
        assert budgets.left("far") == BudgetLimits(None, 100)
        assert [each["event"] for each in logged] == ["budget.unreadable"] * (
            content != ahead
        )
    write_uses(path, {"far": BudgetUse(day=1)})
    assert read_uses(path) == {"far": BudgetUse(day=1)}
    path.chmod(0o644)
    with pytest.raises(BudgetFileError, match="others may access it"):
        read_uses(path)
