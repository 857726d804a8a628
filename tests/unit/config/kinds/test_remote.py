from ipaddress import ip_address

import pytest

from inferd.config.kinds.openai import OPENAI, OpenAiSettings
from inferd.config.kinds.remote_address import is_allowed, parse_address
from inferd.config.settings import ConfigError
from tests.cases import each_case


def settings(**fields) -> OpenAiSettings:
    required = {"name": "r", "base_url": "https://example.org", "model": "m"}
    return OpenAiSettings(**{**required, **fields})


@each_case(
    ("base_url", "expected"),
    [
        ("https://example.org", ("https", "example.org", 443, "/v1", None)),
        ("https://example.org/", ("https", "example.org", 443, "/v1", None)),
        ("https://EXAMPLE.org:8/a/b/", ("https", "example.org", 8, "/a/b", None)),
        ("http://127.0.0.1:8080", ("http", "127.0.0.1", 8080, "/v1", None)),
        ("http://localhost:1", ("http", "localhost", 1, "/v1", None)),
        ("http://[::1]:1", ("http", "::1", 1, "/v1", None)),
        ("unix:/run/b.sock", ("unix", "localhost", 0, "/v1", "/run/b.sock")),
        ("unix:///run/b.sock", ("unix", "localhost", 0, "/v1", "/run/b.sock")),
    ],
)
def test_an_address_gets_what_it_lacks(base_url, expected):
    assert parse_address(base_url) == expected


@each_case(
    "base_url",
    [
        *("http://example.org", "http://10.0.0.1:80", "http://127.0.0.1.example.org"),
        *("http://[::ffff:10.0.0.1]", "ftp://example.org", "example.org", "", "unix:a"),
        *(
            "https://user:hunter2@example.org",
            "https://example.org/?key=1",
            "https://a:b",
        ),
        *(
            "https://a:0",
            "https://a:99999",
            "https://a b",
            "https://a\\@b",
            "https://é",
        ),
        *("https://a#b", "https://[::1", "unix:/a\x00"),
        *("https://example.org/é", f"unix:/{'a' * 107}", "unix:/" + "é" * 54),
    ],
)
def test_an_address_over_which_prompts_could_be_read_or_misled_is_refused(base_url):
    with pytest.raises(ConfigError, match="^backend r: base_url: ") as raised:
        OPENAI.locate(settings(base_url=base_url), lambda _: None)
    assert "hunter2" not in str(raised.value)  # it may have a password


@each_case(
    ("address", "host", "expected"),
    [
        *(("8.8.8.8", "example.org", True), ("10.1.2.3", "gpu.lan", True)),
        *(("2001:4860::1", "example.org", True), ("fd12::1", "gpu.lan", True)),
        *(("127.0.0.1", "example.org", False), ("::1", "example.org", False)),
        *(("169.254.169.254", "example.org", False), ("fe80::1%eth0", "a.org", False)),
        *(("fd00:ec2::254", "a.org", False), ("100.100.100.200", "a.org", False)),
        *((str(ip_address(0)), "a.org", False), ("::", "a.org", False)),
        *(("224.0.0.1", "a.org", False), ("ff02::1", "a.org", False)),
        *(("::ffff:127.0.0.1", "a.org", False), ("64:ff9b::7f00:1", "a.org", False)),
        *(("2002:7f00:1::", "a.org", False), ("::ffff:8.8.8.8", "a.org", True)),
        *(("127.0.0.1", "localhost", True), ("10.0.0.1", "localhost", False)),
        *(("127.0.0.1", "127.0.0.1", True), ("127.0.0.2", "127.0.0.1", False)),
        *(("169.254.1.1", "169.254.1.1", True), ("no", "a.org", False)),
    ],
)
def test_a_name_leads_to_other_machines_alone_and_an_address_to_itself(
    address, host, expected
):
    assert is_allowed(address, host) is expected


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"api_key_env": "A", "api_key_credential": "b"}, "api_key_env"),
        ({"thinking_switch": True}, "thinking_switch"),
        ({"ca_file": "/a", "base_url": "http://127.0.0.1:1"}, "ca_file"),
    ],
)
def test_settings_that_do_not_go_together(fields, key):
    found = OPENAI.contradiction(settings(**fields))
    assert found is not None
    assert found.key == key
    assert OPENAI.contradiction(settings(tools=True)) is None
    upper = settings(ca_file="/a", base_url="HTTPS://example.org")
    assert OPENAI.contradiction(upper) is None
