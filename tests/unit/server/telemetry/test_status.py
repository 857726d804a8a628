import json
from collections.abc import Callable

import pytest
import trio
from hypothesis import given, strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from inferd import __version__
from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.ipc.worker import Loading, SandboxReport
from inferd.limits.connections import ADMIN_LISTENER_EVENTS
from inferd.memory.plan import MIB, LinearSize, MemoryBudget, plan_memory
from inferd.server.telemetry.status import BackendFacts, StatusBoard, StatusSubscriber
from inferd.wire.status import LifecycleFrame, StatusFrame
from tests.cases import each_case
from tests.fakes.memory_coordinator import DEMAND

CHAT = BackendCapabilities(model="script", n_ctx=512)
BACKOFF = RestartDelay(0.5, breaker_is_open=False)


def snapshot(board: StatusBoard) -> list[dict[str, object]]:
    return [json.loads(line) for line in board.snapshot]


def heard(listener: StatusSubscriber) -> list[dict[str, object]]:
    """Take what a listener has not taken yet."""
    frames: list[dict[str, object]] = []
    try:
        while True:
            frames.append(json.loads(listener.frames.receive_nowait()))
    except (trio.WouldBlock, trio.EndOfChannel):
        return frames


def words(frames: list[dict[str, object]]) -> list[object]:
    return [frame["status"] for frame in frames]


def test_at_first_the_daemon_is_starting():
    assert snapshot(StatusBoard()) == [
        {"id": "admin", "type": "status", "status": "starting"}
    ]


def test_capabilities_are_told_by_name_and_then_the_lifecycle():
    board = StatusBoard()
    for name in ("b", "c", "a"):
        board.ready(name, CHAT)
    board.all_ready()
    *able, lifecycle = snapshot(board)
    assert [frame["backend"] for frame in able] == ["a", "b", "c"]
    assert lifecycle["status"] == "ready"


def test_a_model_that_was_chosen_is_told_with_the_reason():
    board = StatusBoard()
    board.model_choices = {"chat": "small, 2 of 2 in its ladder: it needs 5 MiB"}
    board.ready("chat", CHAT)
    board.ready("other", CHAT)
    chat, other, _ = snapshot(board)
    assert chat["model_choice"] == "small, 2 of 2 in its ladder: it needs 5 MiB"
    assert "model_choice" not in other


def test_capabilities_say_all_that_a_backend_can():
    accelerator = AcceleratorInfo(
        kind=AcceleratorKind.CUDA,
        gpu_layers=7,
        device_name="Card",
        vram_total_bytes=9,
        vram_free_bytes=0,
    )
    board = StatusBoard()
    board.ready(
        "chat",
        BackendCapabilities(
            accelerator=accelerator,
            model="m",
            n_ctx=8,
            structure=True,
            dialect="qwen",
            n_slots=4,
            cache_type_k="f16",
            cache_type_v="q8_0",
            cpu_variant="haswell",
            transcribe=True,
            audio_sample_rate=16000,
        ),
    )
    assert snapshot(board)[0] == {
        "id": "admin",
        "type": "status",
        "status": "capabilities",
        "backend": "chat",
        "v2": False,
        "vision": False,
        "audio": False,
        "tools": False,
        "thinking": False,
        "embed": False,
        "generate": True,
        "rerank": False,
        "accelerator": "cuda",
        "gpu_layers": 7,
        "device_name": "Card",
        "vram_total_bytes": 9,
        "vram_free_bytes": 0,
        "cpu_variant": "haswell",
        "wire_version": 1,
        "n_ctx": 8,
        "n_slots": 4,
        "transcribe": True,
        "audio_sample_rate": 16000,
        "cache_type_k": "f16",
        "cache_type_v": "q8_0",
        "model": "m",
        "structure": True,
        "dialect": "qwen",
        "daemon_version": __version__,
    }


@pytest.mark.parametrize(("n_mib", "level"), [(100, "info"), (70, "warning")])
def test_what_memory_is_for_is_logged_with_all_numbers(n_mib, level):
    demand = replace(
        DEMAND, weights=40 * MIB, cache=LinearSize(fixed=MIB, per_slot=20 * MIB)
    )
    budget = MemoryBudget(n_bytes=n_mib * MIB, n_slots=2, slots_are_set=False)
    plan = plan_memory({"chat": demand}, budget)
    with capture_logs() as lines:
        StatusBoard().planned(plan)
    [line] = lines
    assert (line["event"], line["log_level"]) == ("memory.planned", level)
    assert (line["budget"], line["n_slots"]) == (f"{n_mib} MiB", plan.n_slots)
    assert line["shrunk"] == (level == "warning")
    assert "40 MiB for weights" in line["backends"]["chat"]


def test_a_start_is_told_in_order():
    board = StatusBoard()
    with board.subscribe() as listener:
        board.loading("chat", Loading(phase="checking_local", path="/m.gguf"))
        board.loading("chat", Loading(phase="kv_cache", n_ctx=512))
        board.ready("chat", CHAT)
        board.all_ready()
        frames = heard(listener)
    assert words(frames) == [
        "starting",
        "loading_model",
        "loading_model",
        "capabilities",
        "ready",
    ]
    assert (frames[1]["phase"], frames[1]["path"]) == ("checking_local", "/m.gguf")
    assert "n_ctx" not in frames[1]
    assert (frames[2]["phase"], frames[2]["n_ctx"]) == ("kv_cache", 512)
    assert "path" not in frames[2]


def test_a_repeated_loading_frame_is_no_event_for_subscribers():
    told: list[StatusFrame] = []
    board = StatusBoard(told.append)
    with board.subscribe() as listener:
        for _ in range(5):
            board.loading("chat", Loading(phase="mmap", path="/m.gguf"))
        assert words(heard(listener)) == ["starting", "loading_model"]
    assert len(told) == 5


def test_a_fallback_is_a_warning_and_counts_as_a_death():
    deaths: list[str] = []
    board = StatusBoard(on_death=deaths.append)
    with capture_logs() as lines:
        board.fell_back("chat", "killed by SIGILL", crashed="a", lower="b")
    [line] = lines
    assert (line["event"], line["log_level"]) == ("worker.stepped_down", "warning")
    assert (line["backend"], line["reason"]) == ("chat", "killed by SIGILL")
    assert (line["crashed"], line["lower"]) == ("a", "b")
    assert deaths == ["chat"]


@each_case(
    ("boxed", "level"),
    [
        (SandboxReport(landlock=7, seccomp=True), "info"),
        (SandboxReport(files_unrestricted=True, seccomp=True), "info"),
        (SandboxReport(files_unrestricted=True), "warning"),
        (SandboxReport(landlock=7, seccomp=True, missing=("a part",)), "warning"),
        (SandboxReport(seccomp=True), "warning"),
        (SandboxReport(landlock=7), "warning"),
    ],
)
def test_an_incomplete_sandbox_is_a_warning(boxed, level):
    board = StatusBoard()
    with capture_logs() as early:
        board.sandboxed("chat", boxed)
    with capture_logs() as lines:
        board.all_ready()
        board.sandboxed("chat", boxed)
    line, again = lines
    assert (early, again) == ([], line)
    assert (line["event"], line["log_level"]) == ("worker.boxed", level)
    assert (line["backend"], line["landlock"]) == ("chat", boxed.landlock)


def test_a_death_is_published_with_its_reason_and_delay():
    board = StatusBoard()
    board.ready("chat", CHAT)
    board.all_ready()
    board.died("chat", "killed by SIGSEGV", BACKOFF)
    assert snapshot(board)[-1] == {
        "id": "admin",
        "type": "status",
        "status": "restarting",
        "phase": "backoff",
        "backend": "chat",
        "reason": "killed by SIGSEGV",
        "retry_in_s": 0.5,
    }
    board.died("chat", "again", RestartDelay(30.0, breaker_is_open=True))
    assert snapshot(board)[-1]["phase"] == "breaker_open"


def test_after_a_death_loading_is_restarting():
    board = StatusBoard()
    board.ready("chat", CHAT)
    board.all_ready()
    board.died("chat", "gone", BACKOFF)
    board.loading("chat", Loading(phase="mmap"))
    assert snapshot(board)[-1]["status"] == "restarting"
    board.ready("chat", CHAT)
    assert snapshot(board)[-1]["status"] == "ready"


def test_the_daemon_is_ready_again_when_every_backend_is():
    board = StatusBoard()
    for name in ("a", "b"):
        board.ready(name, CHAT)
    board.all_ready()
    board.died("a", "gone", BACKOFF)
    board.died("b", "gone", BACKOFF)
    board.ready("b", CHAT)
    assert snapshot(board)[-1]["status"] == "restarting"
    board.ready("a", CHAT)
    assert snapshot(board)[-1]["status"] == "ready"


def test_one_backend_down_when_the_last_one_comes_up_is_not_ready():
    board = StatusBoard()
    board.ready("a", CHAT)
    board.died("a", "gone", BACKOFF)
    board.ready("b", CHAT)
    board.all_ready()
    assert snapshot(board)[-1]["status"] != "ready"
    board.ready("a", CHAT)
    assert snapshot(board)[-1]["status"] == "ready"


def test_draining_is_the_last_published_frame():
    told: list[StatusFrame] = []
    board = StatusBoard(told.append)
    board.all_ready()
    with board.subscribe() as listener:
        board.draining()
        board.died("chat", "gone", BACKOFF)
        board.loading("chat", Loading(phase="mmap"))
        board.ready("chat", CHAT)
        assert words(heard(listener)) == ["ready", "draining"]
    assert told[-1] == LifecycleFrame(status="draining")


def test_a_subscriber_may_lag_by_as_many_events_as_the_protocol_allows():
    board = StatusBoard()
    with board.subscribe() as listener:
        for n in range(ADMIN_LISTENER_EVENTS):
            board.died("chat", str(n), BACKOFF)
        frames = heard(listener)
        board.draining()
        assert words(heard(listener)) == ["draining"]
    assert len(frames) == 1 + ADMIN_LISTENER_EVENTS


async def test_one_event_more_closes_that_subscriber_only(autojump_clock):
    board = StatusBoard()
    with board.subscribe() as slow, board.subscribe() as quick:
        for n in range(ADMIN_LISTENER_EVENTS + 1):
            board.died("chat", str(n), BACKOFF)
            heard(quick)
        heard(slow)
        with trio.fail_after(1), pytest.raises(trio.EndOfChannel):
            await slow.frames.receive()
        board.draining()
        assert words(heard(quick)) == ["draining"]


def test_the_snapshot_takes_no_room_from_the_events():
    board = StatusBoard()
    for n in range(50):
        board.ready(f"b{n}", CHAT)
    with board.subscribe() as listener:
        for n in range(ADMIN_LISTENER_EVENTS):
            board.died("b0", str(n), BACKOFF)
        assert len(heard(listener)) == 51 + ADMIN_LISTENER_EVENTS


def test_a_line_for_one_subscriber_reaches_only_it_and_in_order():
    board = StatusBoard()
    with board.subscribe() as one, board.subscribe() as other:
        one.send(b'{"status": "for you"}')
        board.all_ready()
        assert words(heard(one)) == ["starting", "for you", "ready"]
        assert words(heard(other)) == ["starting", "ready"]


async def test_lines_for_one_listener_count_as_events_do(autojump_clock):
    board = StatusBoard()
    with board.subscribe() as listener:
        for _ in range(ADMIN_LISTENER_EVENTS + 1):
            listener.send(b"{}")
        heard(listener)
        with trio.fail_after(1), pytest.raises(trio.EndOfChannel):
            await listener.frames.receive()
        listener.send(b"{}")


def test_sending_to_a_closed_subscriber_is_no_error():
    board = StatusBoard()
    with board.subscribe() as listener:
        pass
    listener.send(b"{}")


def test_every_death_is_counted():
    told: list[str] = []
    board = StatusBoard(on_death=told.append)
    board.died("a", "gone", BACKOFF)
    board.draining()
    board.died("b", "gone", BACKOFF)
    assert told == ["a", "b"]


def test_a_subscriber_that_left_is_removed():
    board = StatusBoard()
    with board.subscribe():
        pass
    board.all_ready()
    assert not board._subscribers


async def test_a_subscriber_after_the_close_gets_the_status_and_the_end(autojump_clock):
    board = StatusBoard()
    board.draining()
    board.close()
    with board.subscribe() as listener, trio.fail_after(1):
        [frame] = [json.loads(line) async for line in listener.frames]
    assert frame["status"] == "draining"


NAMES = st.sampled_from(["a", "b"])
EVENTS: list[st.SearchStrategy[Callable[[StatusBoard], None]]] = [
    st.builds(
        lambda name, phase: lambda board: board.loading(name, Loading(phase=phase)),
        NAMES,
        st.sampled_from(["mmap", "kv_cache"]),
    ),
    st.builds(lambda name: lambda board: board.ready(name, CHAT), NAMES),
    st.builds(lambda name: lambda board: board.died(name, "gone", BACKOFF), NAMES),
    st.just(StatusBoard.all_ready),
    st.just(StatusBoard.draining),
]


@pytest.mark.slow
@given(events=st.lists(st.one_of(EVENTS), max_size=30), joins_at=st.integers(0, 30))
def test_a_late_subscriber_knows_as_much_as_the_others(events, joins_at):
    board = StatusBoard()
    with board.subscribe() as early:
        for event in events[:joins_at]:
            event(board)
        with board.subscribe() as late:
            for event in events[joins_at:]:
                event(board)
            assert known(heard(early)) == known(heard(late))


def known(frames: list[dict[str, object]]) -> tuple[set[object], object]:
    """Give what a listener knows in the end: the backends, and the last word."""
    able = {frame["backend"] for frame in frames if frame["status"] == "capabilities"}
    return able, [frame for frame in frames if frame["status"] != "capabilities"][-1]


def test_capabilities_have_the_aliases_and_the_state_of_the_moment():
    board = StatusBoard()
    facts = {"chat": BackendFacts(("fast",), "ready")}
    board.facts_of = facts.get
    with board.subscribe() as listener:
        board.ready("chat", CHAT)
        board.ready("other", CHAT)
        _, chat, other = heard(listener)
    assert (chat["aliases"], chat["state"]) == (["fast"], "ready")
    assert not {"aliases", "state"} & other.keys()
    facts["chat"] = BackendFacts((), "failed")
    chat, *_ = snapshot(board)
    assert (chat["aliases"], chat["state"]) == ([], "failed")
