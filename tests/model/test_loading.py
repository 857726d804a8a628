"""Real models that are loaded on demand."""

import pytest

from tests.daemon.harness import DaemonProcess, Frame, MakeDaemon, blocks, eventually

pytestmark = [pytest.mark.slow, pytest.mark.model]

EMBED = {"id": "e", "input": ["hello"]}
RERANK = {"id": "r", "query": "hello", "documents": ["hello", "car"]}


def capabilities(daemon: DaemonProcess) -> dict[str, Frame]:
    listed = daemon.admin().order("backends")["backends"]
    return {each["name"]: each["capabilities"] for each in listed}


@pytest.mark.long
def test_what_headers_say_of_a_model_is_what_it_can_do_once_it_is_loaded(
    make_daemon: MakeDaemon,
):
    backends = [
        {
            "name": use,
            "kind": "llamacpp",
            "model": f"embedded:{use}",
            "n_threads": 1,
            "load": "demand",
        }
        for use in ("chat", "embed", "rerank")
    ]
    speech = {"name": "speech", "kind": "whispercpp", "load": "demand"}
    daemon = make_daemon({"backend": [*backends, speech]}).start()
    assert daemon.worker_pids() == []
    read = capabilities(daemon)
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    for leaf, request in (("embed", EMBED), ("rerank", RERANK)):
        with daemon.connect(f"infer.{leaf}.sock") as client:
            assert client.ask(request)[-1]["type"] != "error"
    assert len(daemon.worker_pids()) == 3
    assert capabilities(daemon) == read
    assert read["speech"]["transcribe"]
    assert read["chat"]["n_ctx"] > 0


@pytest.mark.long
def test_two_real_models_that_do_not_fit_together_take_turns(make_daemon: MakeDaemon):
    chat = {
        "name": "chat",
        "kind": "llamacpp",
        "load": "demand",
        "n_ctx": 512,
        "n_threads": 1,
        "prompt_cache_mb": 0,
        "pause_mb": 0,
    }
    embed = {
        "name": "embed",
        "kind": "llamacpp",
        "model": "embedded:embed",
        "load": "demand",
        "n_threads": 1,
    }
    memory = {"budget": 420 * 2**20, "min_residency_s": 0, "longest_wait_s": 0}
    admission = {"max_active": 1}
    daemon = make_daemon(
        {"backend": [chat, embed], "memory": memory, "admission": admission}
    ).start()
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    assert len(daemon.worker_pids()) == 1
    with daemon.connect("infer.embed.sock") as client:
        assert client.ask(EMBED)[-1]["type"] == "embeddings"
    assert len(daemon.worker_pids()) == 1
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    assert len(daemon.worker_pids()) == 1
    assert len(daemon.logged(msg="worker.unloaded")) == 2


@pytest.mark.long
def test_the_context_of_a_real_model_is_changed_while_it_serves(
    make_daemon: MakeDaemon,
):
    chat = {"name": "chat", "kind": "llamacpp", "n_ctx": 512, "n_threads": 1}
    daemon = make_daemon({"backend": [chat], "admission": {"max_active": 1}}).start()
    assert capabilities(daemon)["chat"]["n_ctx"] == 512
    request = blocks(max_tokens=1)
    with daemon.connect("infer.v2.sock") as client:
        assert client.ask(request)[-1]["type"] == "done"
        text = daemon.config_file.read_text().replace("n_ctx = 512", "n_ctx = 640")
        daemon.config_file.write_text(text)
        assert daemon.admin().order("reload")["applied"] == ["backend chat: n_ctx"]
        assert client.ask(request)[-1]["type"] == "done"
    assert capabilities(daemon)["chat"]["n_ctx"] == 640
    assert eventually(lambda: len(daemon.worker_pids()) == 1)
