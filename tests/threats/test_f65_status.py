"""Somebody looks at the status to learn of others, or looks so often that nobody else can."""

import json

import trio

from inferd.bridge.upstream.own_requests import OwnRequests
from inferd.config.bridge_helper import HelperSettings
from inferd.limits.bridge import MAX_TOLD_REQUESTS
from inferd.server.telemetry.log_tail import LogTail
from tests.unit.bridge.upstream.test_daemon import listening

HELD = 1000
"""Requests of another caller that the daemon has."""


def test_the_helper_tells_no_line_of_the_log_unless_the_operator_allows_it():
    assert "log" not in HelperSettings().allow


def test_a_log_full_of_long_lines_takes_little_to_read():
    tail = LogTail()
    for number in range(10_000):
        tail.write({"level": "info", "msg": "x", "number": number, "text": "y" * 8192})
    assert sum(map(len, tail.lines())) < 64 * 1024


async def test_who_looks_all_the_time_learns_of_own_requests_and_the_daemon_is_asked_once(
    short_dir, autojump_clock
):
    n_asked = 0
    others = [
        {"id": f"b{n}", "socket": "s", "uid": 1, "pid": 1, "phase": "queued"}
        | {"age_ms": 1.0, "output_tokens": 0, "principal": "bob", "position": n + 1}
        for n in range(HELD)
    ]
    own = {**others[0], "id": "a", "position": HELD + 1, "principal": "ada"}
    told = {"id": "admin", "type": "reply", "command": "requests", "ok": True}
    line = json.dumps({**told, "requests": [*others, own]}).encode()

    async def follow(stream, _):
        nonlocal n_asked
        n_asked += 1
        await stream.send_all(line + b"\n")

    requests = OwnRequests(short_dir)
    seen = []

    async def look() -> None:
        seen.append(await requests.of("ada"))

    async with listening(short_dir, "admin.sock", follow):
        with requests.noted("a", "ada"), requests.noted("b1", "bob"):
            async with trio.open_nursery() as nursery:
                for _ in range(200):
                    nursery.start_soon(look)
    assert n_asked == 1
    assert {len(each) for each in seen} == {1}
    assert seen[0][0].position == HELD + 1
    assert HELD > MAX_TOLD_REQUESTS
