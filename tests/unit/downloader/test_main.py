"""The process, as the command at the other end of its socket sees it."""

import os

import pytest

from inferd.models.pull.errors import PullError
from inferd.models.pull.messages import End, Fetch, Head, ListHub
from inferd.models.pull.process import Downloader
from tests.fakes.hub import COMMIT, Behaviour, running_hub

pytestmark = pytest.mark.slow  # a process, a server

TOKEN = "secret"
MODEL = b"GGUF" + b"w" * 100_000


@pytest.fixture(scope="module")
def running():
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(running):
    running.behaviours.clear()
    running.asked.clear()
    running.add_repository("me/m-GGUF", {"m.gguf": MODEL, "README.md": b"x"})
    return running


@pytest.fixture(scope="module")
def downloader(running):
    environ = os.environ | {"HF_ENDPOINT": running.endpoint}
    with Downloader(environ, str(running.ca_file)) as downloader:
        yield downloader


def fetch(downloader, url, **fields):
    """Fetch; give the header and the bytes."""
    downloader.send(Fetch(url=url, **fields))
    head, data = downloader.receive(60), b""
    assert isinstance(head, Head)
    while isinstance(more := downloader.receive(60), bytes):
        data += more
    assert isinstance(more, End)
    return head, data


API = "/api/models/me/m-GGUF"


def test_a_repository_is_listed_at_a_commit_with_its_licence(downloader, hub):
    listing = downloader.list_hub(ListHub(repository="me/m-GGUF", token=TOKEN))
    assert (listing.commit, listing.license) == (COMMIT, "apache-2.0")
    [file] = listing.files
    assert (file.path, file.n_bytes) == ("m.gguf", len(MODEL))
    assert fetch(downloader, file.url)[1] == MODEL
    [asked, _] = hub.asked
    assert asked.path == f"{API}?blobs=true"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_revision_is_asked_for(downloader, hub):
    downloader.list_hub(ListHub(repository="me/m-GGUF", revision="refs/pr/1"))
    assert hub.asked[0].path.startswith(f"{API}/revision/refs%2Fpr%2F1")
    assert "authorization" not in hub.asked[0].headers


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Behaviour(status=404), "the hub answers: 404"),
        (Behaviour(status=401), "the hub answers: 401"),
        (Behaviour(status=503), "the hub answers: 503"),
        (Behaviour(sends=5), "the hub ended the connection"),
        (Behaviour(redirect="https://127.0.0.1:1/"), "redirects to another host, 127"),
        (Behaviour(redirect="http://localhost/"), "redirects to http://localhost, not"),
    ],
)
def test_a_hub_that_lists_nothing_is_told_as_what_it_is(
    downloader, hub, behaviour, words
):
    hub.behaviours[API] = behaviour
    with pytest.raises(PullError, match=words):
        downloader.list_hub(ListHub(repository="me/m-GGUF"))


@pytest.mark.parametrize(
    "repository", [[], {}, {"sha": "../x"}, {"sha": COMMIT, "siblings": [{}]}]
)
def test_a_listing_that_is_none_is_told(downloader, hub, repository):
    hub.repositories["me/odd"] = repository
    with pytest.raises(PullError, match="not a valid response|not asked for"):
        downloader.list_hub(ListHub(repository="me/odd"))


def test_a_renamed_repository_is_followed_on_the_same_host(downloader, hub):
    hub.behaviours["/api/models/me/old"] = Behaviour(redirect=hub.url(API))
    assert downloader.list_hub(ListHub(repository="me/old")).files


def test_a_redirect_to_another_host_needs_the_digest(downloader, hub):
    hub.add("/x", MODEL)
    hub.behaviours["/m"] = Behaviour(redirect=hub.url("/x", host="127.0.0.1"))
    with pytest.raises(PullError, match="redirects to another host, 127.0.0.1, which"):
        fetch(downloader, hub.url("/m"))
    assert fetch(downloader, hub.url("/m"), is_pinned=True)[1] == MODEL


def test_bytes_come_from_an_offset(downloader, hub):
    hub.add("/x", MODEL)
    head, data = fetch(downloader, hub.url("/x"), offset=90_000)
    assert (head.offset, head.n_bytes, data) == (90_000, len(MODEL), MODEL[90_000:])


def test_another_range_than_was_asked_for_is_refused(downloader, hub):
    hub.add("/x", MODEL)
    hub.behaviours["/x"] = Behaviour(headers={"Content-Range": "bytes 5-9/10"})
    with pytest.raises(PullError, match="asked for bytes from 7, got 'bytes 5-9/10'"):
        fetch(downloader, hub.url("/x"), offset=7)


def test_it_ends_with_its_command(hub):
    with Downloader({}, str(hub.ca_file)) as downloader:
        pid = downloader.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_package_that_is_missing_is_named_with_what_to_type(tmp_path):
    (tmp_path / "httpx2.py").write_text("import no_such_module")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(PullError, match="not installed: no_such_module") as raised:
        Downloader(environ).__enter__()
    assert raised.value.hint == "make setup"


def test_a_downloader_that_fails_is_told_with_its_last_words(tmp_path):
    (tmp_path / "httpx2.py").write_text("raise ValueError('odd')")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    with pytest.raises(PullError, match="ended with code 1: ValueError: odd"):
        Downloader(environ).__enter__()
