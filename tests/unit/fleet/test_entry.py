import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from inferd.fleet.drained import changing_drained, drained_names
from inferd.fleet.entry import haproxy_config, smg_arguments, smg_manifest
from inferd.fleet.file import Fleet, FleetError, FleetMember, FleetSettings

MEMBERS = (
    FleetMember("a", "http://10.0.0.1:8313"),
    FleetMember("b", "https://b.example:443"),
    FleetMember("c", "https://[2001:db8::1]:443"),
)


def fleet(path: Path = Path("/etc/fleet.toml"), **settings: str) -> Fleet:
    return Fleet(path, msgspec.convert(settings, FleetSettings), MEMBERS, "inferd-1-2")


def test_smg_reads_the_members_that_are_not_drained_with_the_token():
    assert json.loads(smg_manifest(fleet(), {"b", "c"})) == {
        "version": 1,
        "workers": [{"id": "a", "url": "http://fleet:inferd-1-2@10.0.0.1:8313"}],
    }


def test_smg_repeats_nothing_and_lets_nobody_add_members():
    words = smg_arguments(fleet(ca_file="ca.pem", listen="[::1]:80"), "key")
    assert "--disable-retries" in words
    options = dict(pairwise(words))
    assert options["--policy"] == "cache_aware"
    assert options["--control-plane-api-keys"] == "fleet:fleet:admin:key"
    assert options["--discovery-file"] == "/etc/members.json"
    assert (options["--host"], options["--port"]) == ("::1", "80")
    assert options["--ca-cert-paths"] == "/etc/ca.pem"
    assert "--api-key" not in words  # it would be wanted of callers, in place of theirs


def test_haproxy_verifies_members_and_gives_drained_ones_nothing_new():
    text = haproxy_config(fleet(ca_file="ca.pem"), {"a"}).decode()
    lines = [line.strip() for line in text.splitlines()]
    assert "server a 10.0.0.1:8313 weight 0" in lines
    tls = "ssl verify required ca-file /etc/ca.pem"
    name = "verifyhost b.example sni str(b.example) check-sni b.example"
    assert f"server b b.example:443 {tls} {name}" in lines
    assert f"server c [2001:db8::1]:443 {tls} verifyhost 2001:db8::1" in lines
    assert "retries 0" in lines
    assert "inferd-1-2" not in text


def test_drained_members_are_kept_beside_the_file_as_long_as_they_are_in_it(tmp_path):
    ours = fleet(tmp_path / "fleet.toml", haproxy_file="haproxy.cfg")
    with changing_drained(ours) as names:
        names.update({"a", "gone"})
    assert drained_names(ours) == {"a"}
    assert b"10.0.0.1" not in (tmp_path / "members.json").read_bytes()
    assert (tmp_path / "members.json").stat().st_mode & 0o777 == 0o600
    assert b"weight 0" in (tmp_path / "haproxy.cfg").read_bytes()
    (tmp_path / "fleet.drained.json").write_text("{")
    with pytest.raises(FleetError, match=r"fleet\.drained\.json"):
        drained_names(ours)


def test_a_directory_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with (
        pytest.raises(FleetError, match=str(tmp_path)),
        changing_drained(fleet(tmp_path / "fleet.toml")),
    ):
        pass
