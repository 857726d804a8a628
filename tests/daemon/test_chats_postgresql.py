"""Several bridges on one database of Debian's PostgreSQL."""

import os
import pwd
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tests.daemon.harness import PATIENCE_S, eventually
from tests.daemon.test_chats import Person, tokens
from tests.media_files import png_file

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.short_version]


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """Run a server without a network; give the URL of a database of it."""
    [programs, *_] = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    data = str(folder / "data")
    as_user: Any = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    subprocess.run(
        [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "inferd"],
        check=True,
        capture_output=True,
        cwd=folder,
        **as_user,
    )
    server = subprocess.Popen(
        [
            *(str(programs / "postgres"), "-D", data, "-k", str(folder)),
            *("-c", "listen_addresses=", "-c", "port=5499"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        **as_user,
    )
    try:
        ready = [str(programs / "pg_isready"), "-h", str(folder), "-p", "5499"]
        assert eventually(
            lambda: (
                subprocess.run(ready, check=False, capture_output=True).returncode == 0
            )
        )
        yield f"postgresql://inferd@/postgres?host={folder}&port=5499"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE_S)


def test_bridges_of_one_database_follow_and_stop_each_others_answers():
    with ExitStack() as stack:
        # the server's user may not enter the folders of pytest
        folder = stack.enter_context(TemporaryDirectory(prefix="inferd-postgresql-"))
        url = stack.enter_context(postgresql(Path(folder)))
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
