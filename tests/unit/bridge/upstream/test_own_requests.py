"""Whose requests wait in the daemon, by the daemon's word."""

import json

import pytest
import trio

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.upstream.own_requests import OwnRequests
from inferd.limits.bridge import OWN_REQUESTS_KEPT_S
from tests.unit.bridge.upstream.test_daemon import listening


def request(request_id: str, phase: str = "running", **fields: object) -> object:
    known = {"socket": "infer.v2.sock", "uid": 7, "pid": 8, "age_ms": 5.0}
    return {"id": request_id, "phase": phase, "output_tokens": 2, **known, **fields}


def reply(*requests: object) -> dict[str, object]:
    head = {"id": "admin", "type": "reply", "command": "requests", "ok": True}
    return {**head, "requests": list(requests)}


def encode(frame: object) -> bytes:
    return json.dumps(frame).encode()


async def test_a_caller_is_told_its_own_requests_alone(short_dir):
    asked = []

    async def follow(stream, line):
        asked.append(line["command"])
        told = reply(
            request("a2", "queued", position=3),
            request("b"),
            request("a1", backend="chat"),
        )
        await stream.send_all(b"%b\n" % encode(told))

    own = OwnRequests(short_dir)
    async with listening(short_dir, "admin.sock", follow):
        with own.noted("a1", "ada"), own.noted("a2", "ada"), own.noted("b", "bob"):
            told = await own.of("ada")
            assert [(each.phase, each.position) for each in told] == [
                ("running", None),
                ("queued", 3),
            ]
            assert len(await own.of("bob")) == 1
        assert await own.of("ada") == []
    assert asked == ["requests"]


async def test_many_who_look_at_once_are_one_question(short_dir, autojump_clock):
    n_asked = 0

    async def follow(stream, _):
        nonlocal n_asked
        n_asked += 1
        await stream.send_all(b"%b\n" % encode(reply()))

    own = OwnRequests(short_dir)
    async with listening(short_dir, "admin.sock", follow):
        with own.noted("a", "ada"):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(own.of, "ada")
            assert n_asked == 1
            await trio.sleep(OWN_REQUESTS_KEPT_S)
            await own.of("ada")
    assert n_asked == 2


async def test_a_daemon_that_does_not_tell_is_said_to(short_dir):
    own = OwnRequests(short_dir)
    with own.noted("a", "ada"), pytest.raises(BridgeError) as caught:
        await own.of("ada")
    assert caught.value.reason is Reason.UNAVAILABLE
