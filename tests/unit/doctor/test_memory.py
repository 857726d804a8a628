import pytest
from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LLAMACPP, LlamaCppSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.config.settings import LimitSettings
from inferd.doctor.check import Finding, Verdict
from inferd.doctor.machine import reinstall_hint
from inferd.doctor.memory import Forecast, check_memory, forecast
from inferd.memory.plan import (
    MIB,
    InsufficientMemoryError,
    LinearSize,
    MemoryBudget,
    MemoryPlan,
    MemoryShare,
    plan_memory,
)
from tests.fakes.memory_coordinator import DEMAND
from tests.fakes.starting import program_of
from tests.model.tiny import write_tiny_model

GIB = 1024 * MIB
BIG = replace(DEMAND, weights=100 * MIB, cache=LinearSize(per_slot=50 * MIB), own=0)
ENCODER = replace(BIG, has_slots=False)


def budget(n_mib: int) -> MemoryBudget:
    return MemoryBudget(n_bytes=n_mib * MIB, n_slots=2, slots_are_set=False)


def workers(*settings: LlamaCppSettings) -> list[tuple[str, LlamaCppSettings]]:
    without_hashes = LLAMACPP.doctor.without_hashes
    return [(program_of(each), without_hashes(each)) for each in settings]


def known(n_mib: int) -> Forecast:
    demands = {"chat": BIG, "embed": ENCODER}
    try:
        plan: MemoryPlan | None = plan_memory(demands, budget(n_mib))
        refusal = ""
    except InsufficientMemoryError as error:
        plan, refusal = None, str(error)
    return Forecast(demands, {}, plan, refusal)


def checked(name: str, n_mib: int, *, daemon_runs: bool = False) -> Finding:
    return check_memory(name, known(n_mib), "", daemon_runs=daemon_runs)


def test_what_takes_the_whole_budget_is_not_shown_as_more_than_that():
    demands = {"chat": replace(ENCODER, weights=100 * MIB - 1)}
    total = plan_memory(demands, budget(500)).total
    plan = plan_memory(demands, replace(budget(0), n_bytes=total))
    found = check_memory("chat", Forecast(demands, {}, plan), "", daemon_runs=False)
    assert found.verdict is Verdict.OK
    assert found.detail.endswith("all backends 150 MiB, the budget is 150 MiB")


def test_what_fits_is_well_with_all_numbers():
    finding = checked("chat", 500)
    assert finding.verdict is Verdict.OK
    assert finding.detail == (
        "needs 200 MiB (100 MiB for weights, 100 MiB for 2 slots of 512 tokens, "
        "0 MiB to compute, 0 MiB for the worker); all backends 350 MiB, "
        "the budget is 500 MiB"
    )
    assert finding.figures["total"] == 200 * MIB
    assert finding.figures["budget"] == 500 * MIB
    assert (finding.figures["n_slots"], finding.figures["n_ctx"]) == (2, 512)


def test_what_has_shrunk_to_fit_is_a_warning_and_what_has_not_is_well():
    chat, embed = checked("chat", 320), checked("embed", 320)
    assert (chat.verdict, chat.figures["n_slots"]) == (Verdict.WARNING, 1)
    assert chat.detail.endswith("the budget is 320 MiB; reduced to fit")
    assert embed.verdict is Verdict.OK


def test_what_does_not_fit_is_a_failure_with_a_hint():
    finding = checked("chat", 100)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail.startswith("not enough memory: chat needs 150 MiB")
    assert "[memory] budget" in finding.hint


def test_beside_a_daemon_that_runs_what_does_not_fit_is_a_warning():
    finding = checked("chat", 100, daemon_runs=True)
    assert finding.verdict is Verdict.WARNING
    assert finding.detail.startswith("besides the running daemon: not enough memory")


@pytest.mark.parametrize(("n_mib", "n_ctx"), [(500, 512), (100, 512)])
def test_a_decode_by_itself_takes_one_slot(n_mib, n_ctx):
    assert known(n_mib).share("chat", BIG) == MemoryShare(n_slots=1, n_ctx=n_ctx)


@pytest.mark.slow
@pytest.mark.model
def test_nothing_is_loaded_to_find_out(short_dir):
    there, missing = (
        LlamaCppSettings(name=name, model=str(short_dir / name), sha256=sha256)
        for name, sha256 in (("there", "0" * 64), ("missing", None))
    )
    write_tiny_model(short_dir / "there")
    found = forecast(workers(there, missing), budget(500), LimitSettings())
    assert found.demands["there"].n_ctx == 512
    assert found.plan is not None
    assert replace(found.plan.share("there"), store=0, pause=0) == MemoryShare(
        n_slots=2, n_ctx=512
    )
    finding = check_memory("missing", found, "look at it", daemon_runs=False)
    assert finding.verdict is Verdict.FAILED
    assert finding.hint == reinstall_hint()
    assert finding.detail == f"model file not found: {short_dir}/missing"


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("key", ["mmproj", "model_parts"])
def test_files_that_do_not_belong_together_are_told_as_broken(short_dir, key):
    path = str(write_tiny_model(short_dir / "tiny.gguf"))
    alone = LlamaCppSettings(name="chat", model=path)
    files = {"mmproj": path, "model_parts": (path,)}
    settings = replace(alone, **{key: files[key]})
    found = forecast(workers(settings), budget(500), LimitSettings())
    finding = check_memory("chat", found, "look at it", daemon_runs=False)
    assert path in finding.detail
    assert finding.hint == "look at it"


@pytest.mark.slow
@pytest.mark.model
def test_what_is_too_large_is_found_out_without_loading_it(short_dir):
    path = write_tiny_model(short_dir / "tiny.gguf")
    settings = LlamaCppSettings(name="chat", model=str(path), n_ctx=10**8)
    found = forecast(workers(settings), budget(500), LimitSettings())
    assert found.plan is None
    assert "for 1 slot of 100000000 tokens" in found.refusal
    assert found.refusal.endswith(" for chat would fit")


@pytest.mark.parametrize("kind", [LlamaCppSettings, WhisperCppSettings])
def test_no_hash_is_taken_to_predict(kind):
    settings = kind(name="a", sha256="0" * 64)
    assert KINDS.of(settings).doctor.without_hashes(settings) == kind(name="a")
