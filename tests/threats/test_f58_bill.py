"""Requests that cost money: a remote's budget bounds them, over restarts too."""

import json
import time
from pathlib import Path

import pytest

from inferd.admission.budget import DAY_S
from tests.daemon.harness import MakeDaemon, mock
from tests.fakes.remote_engine import ANSWER, sends, serving, status

TOKENS = 1000


@pytest.mark.slow
def test_a_used_up_budget_refuses_over_a_restart_and_others_are_routed_on(
    make_daemon: MakeDaemon, short_dir: Path
):
    kept = short_dir / "budgets.json"
    day = int(time.time() // DAY_S) + 1  # so that no midnight comes between
    kept.write_text(json.dumps({"far": {"day": day, "tokens": TOKENS}}))
    kept.chmod(0o600)
    with serving() as engine:
        far = {
            "name": "far",
            "kind": "openai",
            "base_url": engine.url,
            "model": "m",
            "route_unnamed": True,
            "max_tokens_per_day": TOKENS,
        }
        config = {"backend": [far, mock(tokens=["near"])]}
        environ = {"STATE_DIRECTORY": str(short_dir)}
        daemon = make_daemon(config, environ=environ).start()
        [error] = daemon.ask(model="far", max_tokens=20)
        assert error["code"] == "backend_unavailable"
        assert "max_tokens_per_day is 1000" in error["message"]
        assert 0 < error["retry_after_ms"] <= 2 * DAY_S * 1000
        assert daemon.ask(max_tokens=20)[-1]["backend"] == "mock"
        assert engine.requests == []
        with daemon.admin() as listener:
            frames = listener.until("ready")
            [told] = [each for each in frames if each.get("remote")]
            assert told["budget"] == {"tokens_left": 0}
        [event] = daemon.logged(msg="budget.spent")
        assert (event["backend"], event["setting"]) == ("far", "max_tokens_per_day")
        assert daemon.stop() == 0
        kept.write_text("{")
        daemon = make_daemon(config, environ=environ).start()
        assert daemon.logged(msg="budget.unreadable")
        assert daemon.ask(max_tokens=20)[-1]["backend"] == "far"
        assert daemon.stop() == 0
        found = json.loads(kept.read_text())["far"]
        assert (
            found["tokens"] == 9
        )  # a minute may have ended since, so not its requests


@pytest.mark.slow
def test_requests_go_on_to_the_next_backend_while_the_breaker_is_open(
    make_daemon: MakeDaemon,
):
    with serving() as engine:
        far = {
            "name": "far",
            "kind": "openai",
            "base_url": engine.url,
            "model": "m",
            "route_unnamed": True,
        }
        daemon = make_daemon({"backend": [far, mock(tokens=["near"])]}).start()
        engine.script = sends(status(500, {}))
        for _ in range(3):  # none is repeated elsewhere
            [error] = daemon.ask(max_tokens=20)
            assert error["code"] == "backend_unavailable"
        assert daemon.ask(max_tokens=20)[-1]["backend"] == "mock"
        assert len(engine.requests) == 3
        engine.script = sends(ANSWER)
