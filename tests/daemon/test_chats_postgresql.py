"""Several bridges on one database of Debian's PostgreSQL."""

from base64 import b64encode
from contextlib import ExitStack

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tests.daemon.postgresql import postgresql
from tests.daemon.test_chats import Person, tokens
from tests.media_files import png_file

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.short_version]


def test_bridges_of_one_database_follow_and_stop_each_others_answers():
    with ExitStack() as stack:
        url = stack.enter_context(postgresql()).url
        make = stack.enter_context(daemons())
        words = [f"word{number} " for number in range(40)]
        backends = [
            mock(name="paced", tokens=words, token_delay_ms=50),
            mock(name="long", tokens=["x "] * 100_000, token_delay_ms=20),
        ]
        daemon = make({"backend": backends, "chats": {"database": url}}).start()
        bridges = [
            stack.enter_context(bridge_to(daemon, "--development")) for _ in range(2)
        ]
        here, there = (Person(bridge, "ada") for bridge in bridges)
        stack.callback(here.http.close)
        stack.callback(there.http.close)
        answer = here.say(here.chat(), "count", "paced")
        events, last = there.events(answer)
        assert "".join(tokens(events)) == "".join(words)
        assert last == "end"
        hits = there.ask("GET", "/chats/search?q=word39")["hits"]
        assert len(hits) == 1
        sent = [{"name": "a.png", "data": b64encode(png_file()).decode()}]
        chat = here.chat()
        fields = {"content": "See", "attachments": sent}
        prompt = here.ask("POST", f"/chats/{chat}/prompter_message", fields)
        [kept] = prompt["attachments"]
        file = there.http.get(f"/chats/{chat}/attachments/{kept['id']}")
        assert file.content == png_file()
        answer = here.say(here.chat(), "forever", "long")
        _, last = here.events(answer, until=3)
        assert there.ask("POST", f"{answer}/stop", {})["state"] == "cancelled"
        rest, _ = here.events(answer, last)
        assert rest[-1]["message"]["state"] == "cancelled"
        assert there.ask("GET", "/chats?limit=1")["next"]
