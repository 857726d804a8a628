"""Requests of the bridge, as a connection brings them, and what becomes of each."""

import json
import shutil
import socket
from typing import Any

import msgspec
import pytest
import trio

from inferd.config.bridge_helper import HelperSettings
from inferd.limits.bridge import HELPER_REQUEST_BYTES, HELPER_REQUEST_S
from inferd.management.pulling import failure_of_pull
from inferd.management.service import HelperService
from inferd.models.pull.errors import PullError
from inferd.models.store.directory import PARTIAL
from inferd.models.store.store import ModelStore
from inferd.wire.management import HELPER_FRAMES, HelperDone, HelperFailure
from tests.fakes.hub import Behaviour
from tests.unit.models.store.stores import add_model

MODEL = b"GGUF" + bytes(range(256)) * 400


N_SENT = 5000
PATIENCE_S = 60
BOUNDS = {"max_pull_bytes": (1000, "too_large"), "min_free_bytes": (2**60, "no_space")}


def partial_bytes(store: ModelStore) -> int:
    """Give the bytes of files that are not complete, but for what is noted of them."""
    paths = (store.directory.path / PARTIAL).glob("pull-*")
    return sum(path.stat().st_size for path in paths if not path.suffix)


def connected() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = socket.socketpair()
    return (
        trio.SocketStream(trio.socket.from_stdlib_socket(ours)),
        trio.SocketStream(trio.socket.from_stdlib_socket(theirs)),
    )


async def exchange(service: HelperService, line: bytes) -> list[Any]:
    """Send a line; give all frames of the answer."""
    ours, theirs = connected()
    answer = b""
    async with trio.open_nursery() as nursery, ours:
        nursery.start_soon(service.handle, theirs)
        await ours.send_all(line)
        while data := await ours.receive_some():
            answer += data
    return [HELPER_FRAMES.decode(each) for each in answer.splitlines()]


async def ask(service: HelperService, command: str, **fields: Any) -> list[Any]:
    request = {"command": command, "principal": "ada", **fields}
    return await exchange(service, json.dumps(request).encode() + b"\n")


async def failure(service: HelperService, command: str, **fields: Any) -> HelperFailure:
    [*_, last] = await ask(service, command, **fields)
    assert isinstance(last, HelperFailure)
    return last


def lines_of(service: HelperService) -> list[dict[str, Any]]:
    return [json.loads(line) for line in vars(service)["lines"]]


async def test_models_are_listed_shown_and_removed(serve, allowing, store):
    add_model(store, "a/b:c", b"one")
    add_model(store, "d", b"two")
    service = serve(allowing("test"))
    *models, _ = await ask(service, "list")
    assert [model.name for model in models] == ["a/b:c", "d"]
    shown, _ = await ask(service, "show", model="d")
    assert (shown.files[0].n_bytes, shown.is_complete) == (3, True)
    [done] = await ask(service, "remove", model="d")
    assert (done.freed_bytes, store.names()) == (3, ["a/b:c"])
    assert (await failure(service, "show", model="d")).code == "model_not_found"
    [line, *_] = [each for each in lines_of(service) if each.get("model") == "d"]
    assert (line["principal"], line["command"], line["outcome"]) == (
        "ada",
        "show",
        "done",
    )


async def test_a_directory_in_which_nothing_was_pulled_yet_has_no_models(
    serve, allowing, store
):
    shutil.rmtree(store.directory.path)
    service = serve(allowing("test"))
    assert await ask(service, "list") == [HelperDone()]
    store.directory.path.mkdir()
    assert await ask(service, "list") == [HelperDone()]


async def test_the_log_says_why_a_store_cannot_be_used(serve, allowing, store):
    path = store.directory.path
    path.chmod(0o777)
    service = serve(allowing("test"))
    told = await failure(service, "list")
    assert (told.code, str(path) in told.message) == ("failed", False)
    [reason, _] = lines_of(service)
    assert str(path) in reason["error"]


async def test_a_model_of_a_source_that_is_not_allowed_is_not_removed(
    serve, allowing, store
):
    add_model(store, "d", b"two")
    refusal = await failure(serve(allowing("hf:ada/")), "remove", model="d")
    assert (refusal.code, store.names()) == ("not_allowed", ["d"])


@pytest.mark.parametrize("command", ["status", "load", "reload"])
async def test_a_daemon_that_is_not_there_is_told(serve, allowing, command):
    refusal = await failure(serve(allowing()), command, model="m")
    assert (refusal.code, refusal.retry_after_s) == ("unavailable", 1.0)


@pytest.mark.parametrize(
    "line",
    [
        b"[]\n",
        b"\xff\n",
        b'{"command":"list"}\n',
        b'{"command":"shell","principal":"ada"}\n',
        b'{"command":"list","principal":"ada","more":1}\n',
        b'{"command":"list","principal":"a\\u001b"}\n',
        b'{"command":"load","principal":"ada","model":"\\u009b2J"}\n',
        b"x" * (HELPER_REQUEST_BYTES + 1),
    ],
)
async def test_a_line_that_is_no_request_is_refused(serve, allowing, line):
    [refusal] = await exchange(serve(allowing()), line)
    assert refusal.code == "invalid_request"


async def test_a_request_that_comes_slowly_is_refused(serve, allowing, autojump_clock):
    [refusal] = await exchange(serve(allowing()), b'{"command":')
    assert refusal.code == "invalid_request"
    assert trio.current_time() >= HELPER_REQUEST_S


@pytest.mark.slow  # processes, a server
class TestPulls:
    async def test_a_model_is_pulled_with_its_progress(self, serve_hub, hub, store):
        hub.add_repository("me/m", {"m-Q4_K_M.gguf": MODEL})
        service = serve_hub("hf:me/")
        *progress, done = await ask(service, "pull", source="hf:me/m", model="mine")
        assert (done.model, store.names()) == ("mine", ["mine"])
        assert progress[0].phase == "plan"
        assert (progress[-1].done, progress[-1].total) == (len(MODEL), len(MODEL))
        assert store.model("mine").source == "hf:me/m"

    @pytest.mark.parametrize("bound", ["max_pull_bytes", "min_free_bytes"])
    @pytest.mark.parametrize("is_of_hub", [True, False])
    async def test_a_model_over_the_bounds_is_refused_before_its_first_byte(
        self, serve_hub, hub, store, bound, is_of_hub
    ):
        value, code = BOUNDS[bound]
        hub.add_repository("me/m", {"m-Q4_K_M.gguf": MODEL})
        sha256, url = hub.add("/x/m.gguf", MODEL), hub.url("/x/m.gguf")
        service = serve_hub("hf:", url, **{bound: value})
        source = {"source": "hf:me/m"} if is_of_hub else {"source": url}
        digest = {} if is_of_hub else {"sha256": sha256}
        refusal = await failure(service, "pull", **source, **digest)
        assert (refusal.code, store.names()) == (code, [])
        assert partial_bytes(store) == 0

    async def test_a_failure_names_no_path_of_the_machine(
        self, serve_hub, hub, tmp_path
    ):
        url = hub.url("/x/m.gguf")
        hub.add("/x/m.gguf", MODEL)
        service = serve_hub(url)
        refusal = await failure(service, "pull", source=url, sha256="0" * 64)
        assert refusal.code == "failed"
        assert str(tmp_path) not in refusal.message

    async def test_a_hang_up_ends_the_pull_and_the_next_one_goes_on(
        self, serve_hub, hub, store
    ):
        hub.add_repository("me/m", {"m-Q4_K_M.gguf": MODEL})
        [file] = [each for each in hub.files if each.endswith(".gguf")]
        hub.behaviours[file] = Behaviour(sends=N_SENT, then="stall", n_times=1)
        service = serve_hub("hf:me/")
        ours, theirs = connected()
        request = {"command": "pull", "principal": "ada", "source": "hf:me/m"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.handle, theirs)
            async with ours:
                await ours.send_all(msgspec.json.encode(request) + b"\n")
                with trio.fail_after(PATIENCE_S):
                    while partial_bytes(store) < N_SENT:  # noqa: ASYNC110  # another process
                        await trio.sleep(0.01)
        assert service.n_connections == 0
        hub.released.set()
        *_, done = await ask(service, "pull", source="hf:me/m")
        assert store.names() == [done.model]
        assert hub.asked[-1].headers.get("Range") == f"bytes={N_SENT}-"
        assert lines_of(service)[0]["outcome"] == "hung_up"

    async def test_a_pull_that_takes_too_long_is_ended(self, serve_hub, hub, store):
        hub.add_repository("me/m", {"m-Q4_K_M.gguf": MODEL})
        [file] = [each for each in hub.files if each.endswith(".gguf")]
        hub.behaviours[file] = Behaviour(sends=5000, then="stall")
        service = serve_hub("hf:me/", max_pull_s=0.01)
        refusal = await failure(service, "pull", source="hf:me/m")
        assert (refusal.code, store.names()) == ("failed", [])


def test_what_a_pull_says_of_the_store_is_told_without_its_path():
    error = PullError("/srv/models has 5 bytes free\x9b")
    told = failure_of_pull(error, "/srv/models").frame
    assert (told.code, told.message) == ("failed", "the store has 5 bytes free\\x9b")


def test_settings_name_sources_that_can_be_compared():
    for wrong in ("https://host", "http://host/x", "package:p", "hf", ""):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"allow_sources": [wrong]}, HelperSettings)
