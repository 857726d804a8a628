"""The entry in front of several bridges: its token opens nothing, its files are its own."""

from base64 import b64encode

import httpx2
import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.fleet import add_token, chat, head
from tests.daemon.harness import MakeDaemon, eventually, mock


@pytest.mark.slow
def test_the_token_of_the_entry_lists_models_and_asks_none(
    make_daemon: MakeDaemon, tmp_path
):
    kept = tmp_path / "tokens.json"
    entry, ada = add_token(kept, "entry", "discovery"), add_token(kept, "ada")
    settings = {"tokens": str(kept), "own_user": False}
    daemon = make_daemon({"backend": [mock(tokens=["hi"])], "bridge": settings})
    daemon.start()
    password = b64encode(f"fleet:{entry}".encode()).decode()
    in_url = {"authorization": f"Basic {password}"}
    with bridge_to(daemon) as bridge, httpx2.Client(base_url=bridge.address) as client:
        for path in ("/server_info", "/v1/models", "/v1/models/mock", "/metrics"):
            assert client.get(path, headers=in_url).status_code == 200, path
            assert client.get(path).status_code == 401, path
        for path in ("/admin/backends", "/api/ps", "/admin/models"):
            assert client.get(path, headers=in_url).status_code == 403, path
        ask = "/v1/chat/completions"
        refused = client.post(ask, json=chat("hello"), headers=in_url)
        assert refused.status_code == 403
        assert "discovery" not in refused.json()["error"]["message"]
        both = [*in_url.items(), *head(ada).items()]
        assert client.post(ask, json=chat("hello"), headers=both).status_code == 200

        def principals() -> list[str]:
            done = bridge.logged("http_request.done")
            return [each["principal"] for each in done if each.get("route") == ask]

        assert eventually(lambda: principals() == ["entry", "ada"])
