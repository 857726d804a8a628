"""Models of the store that are served by name, in a real daemon."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from inferd.models.store.store import ModelStore
from tests.daemon.harness import (
    PATIENCE_S,
    DaemonProcess,
    Frame,
    MakeDaemon,
    clean_environ,
    eventually,
    mock,
    preloaded,
)
from tests.daemon.preloaded import COMMAND
from tests.model.tiny import write_tiny_bert
from tests.unit.models.store.stores import add_model, open_store

pytestmark = [pytest.mark.slow, pytest.mark.model]

CHAT, EMBED = "team/tiny:f32", "bert/tiny"
VECTOR = {"id": "e", "input": ["hello"]}
NEEDED = ("weights", "cache", "compute", "own")
"""Parts of a model's memory that it does not do without."""


class Home:
    """A store, and daemons that serve its models."""

    def __init__(self, scratch: Path, make_daemon: MakeDaemon) -> None:
        self.path = scratch / "models"
        self.store: ModelStore = open_store(self.path)
        self.stores = str(self.path)
        """What daemons and the doctor are told of stores."""
        self.environ: dict[str, str] = {}
        """What daemons are told besides."""
        self._make_daemon = make_daemon
        self.daemon: DaemonProcess

    def make(self, *backends: dict[str, Any], **tables: Any) -> DaemonProcess:
        """Make a daemon with backends besides those of the store."""
        config = {"admission": {"max_active": 1}, **tables}
        if backends:
            config["backend"] = [*backends]
        environ = {"INFERD_MODELS": self.stores, **self.environ}
        self.daemon = self._make_daemon(config, environ=environ)
        return self.daemon

    def serve(self, *backends: dict[str, Any], **tables: Any) -> DaemonProcess:
        """Start a daemon that serves all of the store."""
        return self.make(*backends, models={"serve": True}, **tables).start()

    def chat(self, model: str | None = CHAT) -> Frame:
        """Ask for an answer."""
        named = {} if model is None else {"model": model}
        return self.daemon.ask(max_tokens=1, **named)[-1]

    def embed(self, model: str = EMBED) -> Frame:
        """Ask for a vector."""
        with self.daemon.connect("infer.embed.sock") as client:
            return client.ask({**VECTOR, "model": model})[-1]

    def diagnose(self) -> dict[str, dict[str, Any]]:
        """Run the doctor for the daemon that was made last; give its findings."""
        config = str(self.daemon.config_file)
        environ = clean_environ() | {"INFERD_MODELS": self.stores}
        done = preloaded().run(
            [*COMMAND, "doctor", "--json", "--config", config], environ
        )
        return {each["check"]: each for each in json.loads(done.stdout)["findings"]}

    def told(self) -> dict[str, tuple[str, bool]]:
        """Give the state of each model, and whether its header has been read."""
        with self.daemon.admin() as listener:
            frames = listener.until("ready")[:-1]
        return {
            each["backend"]: (each["state"], "is_unread" not in each) for each in frames
        }


@pytest.fixture
def home(tmp_path: Path, make_daemon: MakeDaemon, tiny_f32: Path) -> Home:
    """A store with a model that writes and one that embeds."""
    home = Home(tmp_path, make_daemon)
    add_model(home.store, CHAT, tiny_f32.read_bytes())
    bert = write_tiny_bert(tmp_path / "bert.gguf")
    add_model(home.store, EMBED, bert.read_bytes())
    return home


def test_models_of_the_store_are_served_by_name_without_a_backend(home: Home):
    daemon = home.serve()
    assert daemon.worker_pids() == []
    assert home.told() == {CHAT: ("unloaded", False), EMBED: ("unloaded", False)}
    unnamed = home.chat(None)
    assert unnamed["code"] == "backend_unavailable"
    assert f"{EMBED}, {CHAT}" in unnamed["message"]
    assert home.chat()["backend"] == CHAT
    assert home.embed()["type"] == "embeddings"
    assert home.told() == {CHAT: ("ready", True), EMBED: ("ready", True)}
    refused = home.embed(CHAT)
    assert (refused["code"], refused["models"]) == ("model_not_found", [EMBED])


def test_models_of_a_second_store_are_served_and_diagnosed_as_those_of_the_first(
    home: Home, tmp_path: Path
):
    home.stores = f"{open_store(tmp_path / 'own').directory.path}:{home.path}"
    home.make(models={"serve": [CHAT]}).start()
    assert home.told() == {CHAT: ("unloaded", True)}
    assert home.chat()["backend"] == CHAT
    assert home.diagnose()[f"served[{CHAT}]"]["verdict"] == "ok"


def test_a_configured_backend_answers_what_has_no_name(home: Home):
    home.serve(mock(name="one", aliases=[EMBED]))
    assert home.chat(None)["backend"] == "one"
    assert home.chat(EMBED)["backend"] == "one"  # its alias stands before the store
    assert home.chat()["backend"] == CHAT
    unknown = home.chat("other")
    assert (unknown["code"], unknown["models"]) == (
        "model_not_found",
        ["one", EMBED, CHAT],
    )


def test_the_only_model_of_the_store_answers_what_has_no_name(home: Home):
    home.store.remove(EMBED)
    home.serve()
    assert home.chat(None)["backend"] == CHAT


def test_what_is_brought_is_served_and_what_is_removed_is_not(
    home: Home, tiny_q8_0: Path
):
    daemon = home.serve(mock(name="one"))
    assert home.chat()["backend"] == CHAT
    name = "team/tiny:q8_0"
    assert home.chat(name)["code"] == "model_not_found"
    add_model(home.store, name, tiny_q8_0.read_bytes())
    assert home.chat(name)["backend"] == name
    home.store.remove(CHAT)
    assert eventually(lambda: home.chat().get("code") == "model_not_found")
    assert home.chat(name)["backend"] == name
    assert eventually(lambda: len(daemon.worker_pids()) == 2)  # and that of "one"
    assert set(home.told()) == {"one", EMBED, name}


def test_a_broken_model_is_refused_until_it_is_brought_again(
    home: Home, tiny_f32: Path
):
    broken = "team/broken"
    add_model(home.store, broken, b"GGUF and nothing else")
    path = home.path / "manifests" / "team+torn.json"
    path.write_text("{")
    daemon = home.serve(mock(name="one"))
    [line] = daemon.logged(msg="models.refused", name="team/torn")
    assert str(path) in line["reason"]
    for model, words in (
        (broken, "model file: GGUF version"),
        ("team/torn", "inferd doctor"),
    ):
        for _ in range(2):
            frame = home.chat(model)
            assert frame["code"] == "backend_unavailable"
            assert words in frame["message"]
            assert str(home.path) not in frame["message"]
    assert len(daemon.logged(msg="models.refused", name=broken)) == 1
    assert home.chat()["backend"] == CHAT
    add_model(home.store, broken, tiny_f32.read_bytes())
    assert eventually(lambda: home.chat(broken).get("backend") == broken)


def test_digests_are_compared_when_a_model_is_loaded_and_not_before(
    home: Home, tiny_f32: Path
):
    name, weights = "team/altered", tiny_f32.read_bytes()
    [file] = add_model(home.store, name, weights[:-1] + b"X").files
    blob = home.path / "blobs" / file.sha256
    blob.unlink()
    blob.write_bytes(weights)
    daemon = home.make(mock(name="one"), models={"serve": [name]}).start()
    assert home.told()[name] == ("unloaded", True)
    for _ in range(2):
        frame = home.chat(name)
        assert frame["code"] == "backend_unavailable"
        assert "SHA-256" in frame["message"]
    assert len(daemon.logged(msg="models.refused", name=name)) == 1


def test_models_that_the_configuration_names_are_read_at_the_start(home: Home):
    daemon = home.make(models={"serve": [CHAT], "n_ctx": 128}).start()
    assert daemon.worker_pids() == []
    assert home.told() == {CHAT: ("unloaded", True)}
    assert not (daemon.directory / "infer.embed.sock").exists()
    refused = home.chat(EMBED)
    assert (refused["code"], refused["models"]) == ("model_not_found", [CHAT])
    assert home.chat(None)["backend"] == CHAT  # the only one
    listed = daemon.admin().order("backends")["backends"]
    assert [each["capabilities"]["n_ctx"] for each in listed] == [128]


def test_systemd_gives_a_start_more_time_while_headers_of_the_store_are_read(
    home: Home, short_dir: Path
):
    path = short_dir / "notify"
    home.environ["NOTIFY_SOCKET"] = str(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(PATIENCE_S)
        home.make(models={"serve": [CHAT]}).spawn()
        said = manager.recv(4096).decode().splitlines()
    assert said[0].startswith("STATUS=loading: ")
    assert said[1].startswith("EXTEND_TIMEOUT_USEC=")


def test_a_start_fails_for_a_model_that_is_named_and_missing_or_broken(home: Home):
    add_model(home.store, "team/broken", b"GGUF and nothing else")
    missing = home.make(models={"serve": [CHAT, "team/other"]}).refusal()
    assert "models.serve: team/other" in missing
    assert "has no model team/other; there are: " in missing
    assert CHAT in missing
    broken = home.make(models={"serve": ["team/broken"]}).refusal()
    assert "models.serve: team/broken: backend team/broken: model file /" in broken


def test_a_reload_serves_other_models_of_the_store(home: Home):
    daemon = home.make(mock(name="one"), models={"serve": [CHAT]}).start()
    assert home.chat()["backend"] == CHAT

    def reload(serve: str) -> Frame:
        text = daemon.config_file.read_text()
        before = text[text.index("serve = ") :].splitlines()[0]
        daemon.config_file.write_text(text.replace(before, f"serve = {serve}"))
        return daemon.admin().order("reload")

    assert reload(f'["{EMBED}"]')["applied"] == ["models.serve"]
    assert home.embed()["type"] == "embeddings"
    assert home.chat()["code"] == "model_not_found"
    assert reload("true")["ok"]
    assert home.chat()["backend"] == CHAT
    refused = reload('["team/other"]')
    assert "has no model team/other" in refused["error"]
    assert home.chat()["backend"] == CHAT
    assert reload("false")["ok"]
    assert home.chat()["code"] == "model_not_found"
    assert home.chat(None)["backend"] == "one"


def test_the_doctor_says_what_would_be_served_and_what_not(home: Home):
    add_model(home.store, "team/broken", b"GGUF and nothing else")
    (home.path / "manifests" / "team+torn.json").write_text("{")
    home.make(mock(name="other", aliases=[EMBED]), models={"serve": True})
    found = home.diagnose()
    assert found["served"]["detail"].startswith("3 models of the store are served")
    assert {
        name: (each["verdict"], each["detail"].split(":")[0])
        for name, each in found.items()
        if name.startswith("served[")
    } == {
        f"served[{CHAT}]": ("ok", "can be loaded"),
        f"served[{EMBED}]": ("warning", "not served"),
        "served[team/broken]": ("warning", "not served"),
        "served[team/torn]": ("warning", "not served"),
    }
    hint = found["served[team/broken]"]["hint"]
    assert hint == "inferd model remove team/broken; then bring it again"
    home.make(models={"serve": ["team/torn"]})
    assert home.diagnose()["served[team/torn]"]["verdict"] == "failed"


def test_two_models_of_the_store_that_do_not_fit_together_take_turns(home: Home):
    home.make(models={"serve": True})
    found = home.diagnose()
    needs = [
        sum(found[f"served[{name}]"]["figures"][part] for part in NEEDED)
        for name in (CHAT, EMBED)
    ]
    budget = max(needs) + min(needs) // 2
    memory = {"budget": budget, "min_residency_s": 0, "longest_wait_s": 0}
    daemon = home.serve(memory=memory)
    for _ in range(2):
        assert home.chat()["type"] == "done"
        assert len(daemon.worker_pids()) == 1
        assert home.embed()["type"] == "embeddings"
        assert len(daemon.worker_pids()) == 1
    assert len(daemon.logged(msg="worker.unloaded")) == 3


def test_an_operator_loads_and_unloads_a_model_of_the_store(home: Home):
    daemon = home.serve()
    assert daemon.admin().order("unload", backend=CHAT)["ok"]  # nobody has named it
    assert home.told()[CHAT] == ("unloaded", False)
    assert daemon.admin().order("load", backend=CHAT)["ok"]
    assert home.told()[CHAT] == ("ready", True)
    assert daemon.admin().order("unload", backend=CHAT)["ok"]
    assert home.told()[CHAT] == ("unloaded", True)
    for command in ("load", "unload"):
        refused = daemon.admin().order(command, backend="team/other")
        assert refused["error"].endswith(f"one of {CHAT}, {EMBED}")
