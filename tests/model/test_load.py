from pathlib import Path

import pytest

from inferd.worker.llama.memory.predict import PREPARER_BYTES, PREPARER_TOKEN_BYTES
from tests.daemon.harness import MakeDaemon, llamacpp

pytestmark = [pytest.mark.model, pytest.mark.slow]

MIB = 1024 * 1024


def resident(daemon) -> int:
    """Tell the bytes that the only worker takes, with the pages of files it maps."""
    [pid] = daemon.worker_pids()
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def proportional(pid: int) -> int:
    """Tell the bytes that a process takes, its share of common pages included."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    [line] = [each for each in rollup.splitlines() if each.startswith("Pss:")]
    return int(line.split()[1]) * 1024


def assert_refused(daemon, *words):
    refusal = daemon.refusal()
    assert refusal.startswith("error: backend chat: ")
    assert [word for word in words if word not in refusal] == []
    assert not daemon.infer_sock.exists()
    assert not daemon.admin_sock.exists()


def test_a_model_that_is_not_there_is_refused(make_daemon: MakeDaemon, tmp_path):
    path = tmp_path / "missing.gguf"
    assert_refused(
        make_daemon({"backend": [llamacpp(path)]}), f"model file not found: {path}"
    )


def test_a_text_file_is_refused(make_daemon: MakeDaemon, tmp_path):
    path = tmp_path / "notes.gguf"
    path.write_text("Remember the milk, the bread, the butter.\n")
    assert_refused(
        make_daemon({"backend": [llamacpp(path)]}),
        f"model file {path}: not a GGUF file",
    )


def test_a_model_that_is_cut_short_is_refused(
    make_daemon: MakeDaemon, tmp_path, embedded_chat
):
    path = tmp_path / "half.gguf"
    with embedded_chat.open("rb") as whole:
        path.write_bytes(whole.read(MIB))
    assert_refused(
        make_daemon({"backend": [llamacpp(path)]}),
        f"model file {path}: ",
        f"it ends after {MIB} bytes",
    )


def test_a_model_with_another_hash_is_refused(make_daemon: MakeDaemon, tiny_f32):
    expected = "0" * 64
    daemon = make_daemon({"backend": [llamacpp(tiny_f32, sha256=expected)]})
    assert_refused(daemon, f"SHA-256 of {tiny_f32} is ", f"expected {expected}")


def test_layers_for_an_accelerator_that_is_not_there_are_refused(
    make_daemon: MakeDaemon, tiny_f32
):
    daemon = make_daemon({"backend": [llamacpp(tiny_f32, n_gpu_layers=99)]})
    assert_refused(daemon, "n_gpu_layers = 99", "no accelerator", "n_gpu_layers = 0")


def test_more_than_the_budget_is_refused_with_all_numbers(
    make_daemon: MakeDaemon, embedded_chat
):
    daemon = make_daemon(
        {
            "backend": [llamacpp(embedded_chat, n_ctx=8192)],
            "admission": {"max_active": 4},
            "memory": {"budget": 500 * MIB},
        }
    )
    assert_refused(daemon, "not enough memory: chat needs ", "93 MiB for weights")
    daemon_again = make_daemon(
        {"backend": [llamacpp(embedded_chat)], "memory": {"budget": 100 * MIB}}
    )
    assert_refused(
        daemon_again,
        "45 MiB for 1 slot of 2048 tokens",
        "the budget is 100 MiB",
        "no fewer slots and no shorter context would fit",
    )


def test_what_nobody_has_set_shrinks_to_the_budget_and_is_told(
    make_daemon: MakeDaemon, embedded_chat
):
    daemon = make_daemon(
        {"backend": [llamacpp(embedded_chat)], "memory": {"budget": 320 * MIB}}
    )
    daemon.start()
    [able] = [
        frame
        for frame in daemon.admin().until("ready")
        if frame["status"] == "capabilities"
    ]
    assert able["n_slots"] == 1
    assert 2048 <= able["n_ctx"] < 8192
    [line] = daemon.logged(msg="memory.planned")
    assert line["shrunk"]
    assert daemon.ask(max_tokens=2)[-1]["type"] == "done"
    assert resident(daemon) <= 320 * MIB


def test_the_process_that_tries_grammars_takes_what_is_predicted(
    make_daemon: MakeDaemon, shortened_chat
):
    daemon = make_daemon({"backend": [llamacpp(shortened_chat, n_ctx=512)]})
    daemon.start()
    assert daemon.ask(max_tokens=4, grammar="root ::= [a-z]+")[-1]["type"] == "done"
    taken = sum(map(proportional, daemon.stop_fork()))
    predicted = PREPARER_BYTES + 49_152 * PREPARER_TOKEN_BYTES
    assert 0.6 * predicted < taken <= predicted


@pytest.mark.long
def test_a_draft_model_counts_in_the_budget_and_keeps_to_it(
    make_daemon: MakeDaemon, embedded_chat
):
    drafting = {"speculation": "draft", "draft_model": str(embedded_chat)}
    refused = make_daemon(
        {
            "backend": [llamacpp(embedded_chat, n_ctx=2048, **drafting)],
            "admission": {"max_active": 1},
            "memory": {"budget": 320 * MIB},
        }
    )
    assert_refused(refused, "185 MiB for weights", "90 MiB for 1 slot of 2048 tokens")
    daemon = make_daemon(
        {
            "backend": [llamacpp(embedded_chat, **drafting)],
            "memory": {"budget": 550 * MIB},
        }
    )
    daemon.start()
    [line] = daemon.logged(msg="memory.planned")
    assert line["shrunk"]
    *_, done = daemon.ask("Write a long story.", max_tokens=12, temperature=0)
    assert done["usage"]["drafted_tokens"] > 0
    assert 280 * MIB < resident(daemon) <= 550 * MIB


def test_a_smaller_kind_of_cache_is_told_and_answers(
    make_daemon: MakeDaemon, shortened_chat
):
    small = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    daemon = make_daemon({"backend": [llamacpp(shortened_chat, n_ctx=512, **small)]})
    daemon.start()
    able, *_ = daemon.admin().until("ready")
    assert {name: able[name] for name in small} == small
    assert daemon.ask(max_tokens=2)[-1]["type"] == "done"


def test_a_cache_that_a_model_cannot_have_is_refused(make_daemon: MakeDaemon, tiny_f32):
    daemon = make_daemon({"backend": [llamacpp(tiny_f32, cache_type_v="q8_0")]})
    assert_refused(daemon, "cache_type_v = q8_0", "flash attention")


def test_a_model_that_is_not_in_the_store_is_named_with_what_brings_it(
    make_daemon: MakeDaemon, tmp_path
):
    environ = {"INFERD_MODELS": str(tmp_path)}
    daemon = make_daemon({"backend": [llamacpp("embedded:chat")]}, environ=environ)
    assert_refused(daemon, str(tmp_path), "inferd model pull embedded:chat")


def test_a_listener_hears_each_phase_of_a_load(make_daemon: MakeDaemon, tiny_f32):
    daemon = make_daemon({"backend": [llamacpp(tiny_f32)]}).start()
    listener = daemon.admin()
    listener.until("ready")
    daemon.kill_worker()  # the first load may be half over before anybody can listen
    _, *frames = listener.until("ready")
    loading = [frame for frame in frames if frame["status"] == "restarting"]
    assert [frame["phase"] for frame in loading] == [
        "checking_local",
        "mmap",
        "kv_cache",
    ]
    assert [frame.get("path") for frame in loading] == [str(tiny_f32)] * 2 + [None]
    assert loading[-1]["n_ctx"] == 512
    [capabilities] = [each for each in frames if each["status"] == "capabilities"]
    assert (capabilities["model"], capabilities["n_ctx"]) == ("tiny-random", 512)
    assert frames[-1]["status"] == "ready"


def test_the_first_model_of_a_ladder_that_fits_is_served(
    make_daemon: MakeDaemon, tiny_f32, embedded_chat
):
    ladder = [str(embedded_chat), str(tiny_f32)]
    backend = llamacpp("auto", ladder=ladder, n_ctx=512)
    config = {"memory": {"budget": 200 * MIB}, "backend": [backend]}
    daemon = make_daemon(config).start()
    with daemon.admin() as listener:
        able = listener.frame()
    assert able["model"] == "tiny-random"
    assert able["model_choice"].startswith(f"{tiny_f32}, 2 of 2 in its ladder: ")
    assert f"; {embedded_chat} needs " in able["model_choice"]
    refused = make_daemon(config | {"memory": {"budget": MIB}})
    assert_refused(
        refused, f"no model of its ladder fits; {tiny_f32}: not enough memory"
    )
