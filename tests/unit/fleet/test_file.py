from pathlib import Path

import pytest

from inferd.fleet.bounds import MAX_FLEET_FILE_BYTES, MAX_MEMBERS
from inferd.fleet.file import FleetError, read_fleet
from tests.cases import each_case

TWO = """
[[member]]
name = "a"
url = "http://10.0.0.1:8313"
[[member]]
name = "b"
url = "https://b.example/"
"""


def fleet_file(directory: Path, text: str) -> Path:
    path = directory / "fleet.toml"
    path.write_text(text)
    return path


def member(name: str, url: str) -> str:
    return f'[[member]]\nname = "{name}"\nurl = "{url}"\n'


def test_members_come_from_a_list_with_their_ports(tmp_path):
    fleet = read_fleet(fleet_file(tmp_path, TWO))
    urls = {each.name: each.url for each in fleet.members}
    assert urls == {"a": "http://10.0.0.1:8313", "b": "https://b.example:443"}
    assert fleet.token == ""


def test_members_come_from_all_addresses_of_a_name(tmp_path):
    def resolve(host, port):
        assert (host, port) == ("bridges.example", 8313)
        return ["10.0.0.1", "fd00::1"]

    path = fleet_file(tmp_path, 'dns = "http://bridges.example:8313"')
    found = [(each.name, each.url) for each in read_fleet(path, resolve).members]
    assert found == [
        ("10.0.0.1", "http://10.0.0.1:8313"),
        ("fd00::1", "http://[fd00::1]:8313"),
    ]


@each_case(
    ("text", "words"),
    [
        ("", "either [[member]] tables or dns is needed"),
        (TWO + 'dns = "x"', "Object contains unknown field `dns`"),
        ("member = 3", "Expected `array`"),
        ("x = ", "Invalid value"),
        ('unknown = 1\n[[member]]\nname="a"\nurl="http://a:1"', "unknown field"),
        (member("a/b", "http://a:1"), "matching regex"),
        (member("a", "ftp://a:1"), "no address of a bridge"),
        (member("a", "http://a:1/v1"), "no address of a bridge"),
        (member("a", "http://u:p@a:1"), "no address of a bridge"),
        (member("a", "http://a:x"), "no address of a bridge"),
        (member("a", "http://a b"), "no address of a bridge"),
        (member("a", "http://a:1") * 2, "two members have the name a"),
        (
            member("a", "http://a:80") + member("b", "http://a"),
            "two members have the url http://a:80",
        ),
        (
            "".join(member(f"m{n}", f"http://h{n}") for n in range(MAX_MEMBERS + 1)),
            f"at most {MAX_MEMBERS} are allowed",
        ),
        ("#" * (MAX_FLEET_FILE_BYTES + 1), "bytes"),
        ('tls_key = "x"\n' + TWO, "go together"),
        ('token_file = "none"\n' + TWO, "no token is in it"),
    ],
)
def test_what_cannot_be_used_is_one_error_with_the_file(tmp_path, text, words):
    path = fleet_file(tmp_path, text)
    with pytest.raises(FleetError) as caught:
        read_fleet(path)
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_token_that_others_may_read_is_refused(tmp_path):
    path = fleet_file(tmp_path, 'token_file = "token"\n' + TWO)
    (tmp_path / "token").write_text("inferd-0-0\n")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(FleetError, match="others may access it"):
        read_fleet(path)
    (tmp_path / "token").chmod(0o600)
    assert read_fleet(path).token == "inferd-0-0"


def test_a_missing_file_is_an_error_and_so_is_a_name_that_nobody_knows(tmp_path):
    with pytest.raises(FleetError, match="No such file"):
        read_fleet(tmp_path / "none.toml")
    path = fleet_file(tmp_path, 'dns = "http://a.invalid:8313"')
    with pytest.raises(FleetError, match=r"dns: a\.invalid"):
        read_fleet(path)
