import os
import socket

import pytest

from inferd.bridge.http.guard import HeadRules, credential_of, host_name
from inferd.bridge.http.listen import (
    BridgeListenError,
    Place,
    listening,
    parse_place,
    passed_sockets,
    place_of,
    tls_context,
)
from inferd.bridge.serve import head_rules
from inferd.bridge.translation.failures import BridgeError
from inferd.config.bridge import BridgeSettings
from tests.cases import each_case

RULES = HeadRules(frozenset({"localhost", "[::1]"}), frozenset({"https://good"}))


def head(**fields: str) -> list[tuple[bytes, bytes]]:
    return [
        (name.replace("_", "-").encode(), value.encode())
        for name, value in fields.items()
    ]


@each_case("host", ["localhost", "LOCALHOST:8313", "[::1]:8313", "[::1]"])
def test_names_of_this_bridge_are_accepted(host):
    assert RULES.check(head(host=host)) == ""


@each_case(
    "fields",
    [
        {},
        {"host": "evil.example"},
        {"host": "localhost.evil.example:8313"},
        {"host": "localhost:x"},
        {"host": "localhost", "origin": "null"},
        {"host": "localhost", "origin": "http://localhost:8313"},
        {"host": "localhost", "sec_fetch_site": "cross-site"},
        {"host": "localhost", "sec_fetch_site": "same-site"},
        {"host": "localhost", "content_length": "3", "transfer_encoding": "chunked"},
    ],
)
def test_other_heads_are_refused(fields):
    with pytest.raises(BridgeError):
        RULES.check(head(**fields))


OWN_PAGE = {"host": "localhost:8313", "origin": "http://localhost:8313"}


@each_case(
    "fields",
    [
        OWN_PAGE,
        OWN_PAGE | {"sec_fetch_site": "same-origin"},
        {"host": "LOCALHOST", "origin": "https://localhost"},
        {"host": "[::1]:1", "origin": "http://[::1]:1"},
    ],
)
def test_the_bridges_own_page_may_ask(fields):
    assert RULES.check(head(**fields)) == ""


@each_case(
    "fields",
    [
        OWN_PAGE | {"sec_fetch_site": "cross-site"},
        OWN_PAGE | {"origin": "http://localhost:8314"},
        OWN_PAGE | {"origin": "ws://localhost:8313"},
        OWN_PAGE | {"origin": "localhost:8313"},
        {"host": "evil.example", "origin": "http://evil.example"},
    ],
)
@each_case("is_unix", [False, True])
def test_a_page_of_another_address_is_not_the_bridges_own(fields, is_unix):
    with pytest.raises(BridgeError):
        RULES.check(head(**fields), is_unix=is_unix)


def test_a_link_elsewhere_may_lead_to_the_page_and_to_nothing_else():
    follows = head(
        host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="navigate"
    )
    assert RULES.check(follows, is_public=True) == ""
    with pytest.raises(BridgeError):
        RULES.check(follows)
    fetched = head(host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="cors")
    with pytest.raises(BridgeError):
        RULES.check(fetched, is_public=True)


def test_a_page_that_is_configured_may_ask():
    assert RULES.check(head(host="localhost", origin="https://good")) == "https://good"


def test_an_address_that_a_user_typed_is_accepted():
    assert RULES.check(head(host="localhost", sec_fetch_site="none")) == ""


def test_two_names_are_one_too_many():
    with pytest.raises(BridgeError):
        RULES.check([*head(host="localhost"), *head(host="localhost")])


def test_at_a_unix_socket_any_name_will_do():
    assert RULES.check([], is_unix=True) == ""
    with pytest.raises(BridgeError):
        RULES.check(head(origin="http://x"), is_unix=True)


def test_the_address_itself_and_configured_names_are_names():
    places = [parse_place(each) for each in ("192.0.2.7:80", "/x", "[fd00::1]:80")]
    rules = head_rules(places, BridgeSettings(hosts=("Box",)))
    for host in ("192.0.2.7", "box:80", "localhost", "[fd00::1]:80"):
        rules.check(head(host=host))


@each_case(
    ("value", "name"), [("a:1", "a"), ("a:", "a"), ("[::1]:2", "[::1]"), ("A", "a")]
)
def test_a_name_is_told_from_its_port(value, name):
    assert host_name(value) == name


def test_a_credential_is_bearer_or_a_key():
    assert credential_of(head(authorization="bearer  x")) == "x"
    assert credential_of(head(x_api_key="y")) == "y"
    assert credential_of(head(authorization="Basic eA==")) == ""
    assert credential_of(head(authorization="Basic eDp5")) == "y"  # x:y
    assert credential_of(head(authorization="Basic \xff")) == ""
    assert credential_of(head(authorization="inferd-bare")) == "inferd-bare"
    assert credential_of(head(authorization="Token t") + head(x_api_key="k")) == "k"
    both = head(authorization="Basic eDp5") + head(authorization="Bearer z")
    assert credential_of(both) == "z"
    assert credential_of(head(authorization="Basic eDp5") + head(x_api_key="k")) == "k"


# --- where it listens ---------------------------------------------------------------


def test_places_are_addresses_or_paths():
    assert parse_place("[::1]:80") == Place(host="::1", port=80)
    assert parse_place("localhost:80") == Place(host="127.0.0.1", port=80)
    assert parse_place("./x").path is not None
    for text in ("", "80", "box:80", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:x"):
        with pytest.raises(BridgeListenError):
            parse_place(text)


def test_another_address_than_loopback_needs_tls_or_a_word():
    own = [parse_place("[::1]:80"), parse_place("/x")]
    all_places = [*own, parse_place("0.0.0.0:80")]
    settings = BridgeSettings()
    with pytest.raises(BridgeListenError, match="0.0.0.0:80 is not loopback"):
        tls_context(settings, all_places, is_insecure=False)
    assert tls_context(settings, all_places, is_insecure=True) is None
    assert tls_context(settings, own, is_insecure=False) is None


def test_a_certificate_needs_its_key_and_has_to_be_one(tmp_path):
    places = [parse_place("127.0.0.1:80")]
    (tmp_path / "x").write_text("")
    half = BridgeSettings(certificate=str(tmp_path / "x"))
    both = BridgeSettings(certificate=str(tmp_path / "x"), key=str(tmp_path / "y"))
    for settings in (half, both):
        with pytest.raises(BridgeListenError, match="bridge.certificate"):
            tls_context(settings, places, is_insecure=True)


def test_a_socket_that_nobody_listens_at_is_replaced_and_nothing_else(short_dir):
    place = Place(path=short_dir / "b.sock")
    assert place.path is not None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place.path))
    with listening(place) as first:
        assert place_of(first) == place
        assert place.path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(BridgeListenError), listening(place):
            pass
    assert not place.path.exists()
    place.path.write_text("a file")
    with pytest.raises(BridgeListenError), listening(place):
        pass


def test_the_socket_of_another_bridge_is_left_where_it_is(short_dir):
    place = Place(path=short_dir / "b.sock")
    assert place.path is not None
    with listening(place):
        place.path.unlink()
        with socket.socket(socket.AF_UNIX) as another:
            another.bind(str(place.path))
    assert place.path.exists()


def test_a_directory_that_anybody_may_write_to_is_refused(short_dir):
    short_dir.chmod(0o777)
    with pytest.raises(BridgeListenError, match="anybody"):
        with listening(Place(path=short_dir / "b.sock")):
            pass


# --- sockets of systemd -------------------------------------------------------------


@pytest.fixture
def passed(monkeypatch):
    """Pass descriptors as systemd does; give the variables."""
    first = max(int(each) for each in os.listdir("/proc/self/fd")) + 100  # noqa: PTH208
    monkeypatch.setattr("inferd.service.activation.FIRST_FD", first)

    def hand_over(*socks: socket.socket) -> dict[str, str]:
        for target, sock in enumerate(socks, first):
            os.dup2(sock.fileno(), target, inheritable=True)
        return {
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": str(len(socks)),
            "LISTEN_FDNAMES": ":".join("bridge" for _ in socks),
            "HOME": "/",
        }

    return hand_over


def test_all_sockets_that_systemd_passes_are_taken(passed, short_dir):
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as tcp6,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(f"{short_dir}/x")
        unix.listen()
        environ = passed(tcp, tcp6, unix)
        with passed_sockets(environ) as socks:
            assert [place_of(each) for each in socks] == [
                place_of(each) for each in (tcp, tcp6, unix)
            ]
            assert not any(os.get_inheritable(each.fileno()) for each in socks)
    assert environ == {"HOME": "/"}
    with passed_sockets(environ) as socks:
        assert socks == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_passed_socket_that_does_not_listen_is_refused(passed, kind):
    with socket.socket(socket.AF_INET, kind) as sock:
        with pytest.raises(BridgeListenError, match="bridge: not a listening stream"):
            with passed_sockets(passed(sock)):
                pass
