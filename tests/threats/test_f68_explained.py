"""Somebody reads the records of requests to learn of others, or makes them take memory."""

import json
import os
from typing import Any

import trio

from inferd.config.settings import AccessRule, AccessSettings
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.limits.server import (
    EXPLAINED_ID_CHARS,
    MAX_EXPLAINED_BYTES,
    MAX_LISTED_EXPLAINED,
    MAX_NOTED_HOLDERS,
)
from inferd.wire.observed import ExplainedRequest
from tests.daemon.fixtures import make_daemon as make_real_daemon
from tests.daemon.harness import MakeDaemon, mock
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    connect_as,
    listen_as,
    needs_root,
    open_to_all,
)
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import make_daemon, running
from tests.fakes.streams import Frame, FrameClient, generate, to_line

SECRET = "my blood group is AB negative"
make_process = make_real_daemon


async def explain(listener: FrameClient, **command: Any) -> Frame:
    await listener.send(to_line({"command": "explain", **command}))
    while (frame := await listener.frame() or {}).get("type") == "status":
        pass
    return frame


async def test_no_record_has_a_word_of_what_was_asked_or_answered(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend(Script(tokens=(SECRET,))))
    async with running(server), await server.admin() as operator:
        async with await server.connect() as client:
            request = json.loads(generate("r")) | {"stop": [SECRET[::-1]], SECRET: 1}
            request["messages"] = [{"role": "user", "content": SECRET}]
            await client.send(to_line(request))
            assert (await client.frame() or {})["id"] == "r"
        await trio.testing.wait_all_tasks_blocked()
        told = await explain(operator)
    assert told["explained"][0]["outcome"] == "end"
    assert SECRET[:8] not in json.dumps(told)
    assert SECRET[::-1][:8] not in json.dumps(told)


def test_texts_of_a_record_are_names_and_words_of_the_daemon():
    texts = {
        name
        for name, kind in ExplainedRequest.__annotations__.items()
        if "str" in str(kind)
    }
    assert texts == {"id", "principal", "socket", "model", "backend", "outcome"}


@needs_root
def test_another_user_learns_nothing_of_a_request_and_of_who_runs(
    make_process: MakeDaemon,
):
    access = {"admin": {"uids": [ANNA, BERT]}}
    endless = mock(tokens=["x"] * 10_000, token_delay_ms=10)
    admission = {"max_active": 1}
    config = {"backend": [endless], "access": access, "admission": admission}
    config["listen"] = {"group": SHARED_GROUP}
    daemon = open_to_all(make_process(config)).start()
    with connect_as(daemon, ANNA) as anna, connect_as(daemon, BERT) as bert:
        anna.send({"id": "annas", "messages": [{"role": "user", "content": "hi"}]})
        anna.frame()
        bert.send({"id": "berts", "messages": [{"role": "user", "content": "hi"}]})
        daemon.catch_up()
        with listen_as(daemon.admin_sock, BERT) as listener:
            refusal = listener.order("explain", id="annas")
            assert refusal["error"].endswith("none that has ended is kept")
            [own] = listener.order("explain")["explained"]
            assert "overview" not in listener.order("top")
        assert (own["id"], own["phase"]) == ("berts", "queued")
        assert "waited_for" not in own
        [told] = daemon.admin().order("explain", id="berts")["explained"]
        assert told["waited_for"] == [{"uid": ANNA, "requests": 1}]


def test_a_reply_fits_a_frame_whatever_ids_and_names_requests_have():
    texts = EXPLAINED_ID_CHARS + (2 + MAX_NOTED_HOLDERS) * 128
    assert MAX_LISTED_EXPLAINED * (6 * texts + 4000) < MAX_FRAME_BYTES / 8


async def test_who_sends_refused_requests_without_end_neither_fills_memory_nor_the_records(
    short_dir, autojump_clock
):
    access = AccessSettings(admin=AccessRule(uids=(os.getuid(),)))
    server = make_daemon(short_dir, ScriptedBackend(), access=access)
    async with running(server), await server.admin() as operator:
        async with await server.connect() as client:
            for n in range(30):
                await client.send(generate(f"{n}" + "x" * 20_000))
                assert (await client.frame() or {})["type"] == "token"
                while (await client.frame() or {})["type"] != "done":
                    pass
        told = await explain(operator)
    assert len(json.dumps(told)) < 30 * 2000
    assert MAX_EXPLAINED_BYTES < 64 * 1024 * 1024
