import os
import socket
from pathlib import Path

import pytest

from inferd import peer_credentials
from inferd.client import peer_check
from inferd.client.exchange import ClientError
from inferd.client.peer_check import (
    PeerCheck,
    UntrustedServerError,
    trusted_uids_from,
)
from inferd.peer_credentials import overflow_uid
from tests.cases import each_case

OTHER = 64_321
SERVICE = 64_322


@pytest.fixture
def service(monkeypatch, tmp_path):
    """Have a service of a user of its own, with its sockets in a directory of root's."""
    (tmp_path / "run").mkdir()
    entry = type("Entry", (), {"pw_uid": SERVICE})
    monkeypatch.setattr(peer_check, "SYSTEM_DIRECTORY", tmp_path / "run")
    monkeypatch.setattr("pwd.getpwnam", {"inferd": entry}.__getitem__)
    monkeypatch.setattr(peer_check, "ROOT_UID", os.geteuid())
    return tmp_path / "run"


def usual(path="/nowhere/infer.sock", named=()):
    return PeerCheck.for_socket(Path(path), named).uids


def test_root_the_own_user_and_given_uids_are_trusted(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert usual() == {0, OTHER}
    monkeypatch.setenv("INFERD_TRUST_UID", "7")
    assert usual(named=[8]) == {0, OTHER, 7, 8}


def test_the_service_may_answer_where_only_it_and_root_have_sockets(service, tmp_path):
    assert SERVICE in usual(service / "infer.sock")
    assert SERVICE in usual(service / "small" / "infer.sock")
    assert SERVICE not in usual(tmp_path / "infer.sock")
    assert SERVICE not in usual(service / ".." / "infer.sock")
    assert SERVICE not in usual(tmp_path / "running" / "infer.sock")


def test_a_way_through_symlinks_is_judged_by_its_end(service, tmp_path):
    (tmp_path / "there").symlink_to(service)
    (service / "elsewhere").symlink_to(tmp_path)
    assert SERVICE in usual(tmp_path / "there" / "infer.sock")
    assert SERVICE not in usual(service / "elsewhere" / "infer.sock")


def test_the_service_may_not_answer_where_others_could_put_a_socket(service):
    service.chmod(0o777)
    assert SERVICE not in usual(service / "infer.sock")


@pytest.mark.parametrize("lacks", ["user", "directory"])
def test_without_the_service_s_user_no_further_uid_is_trusted(
    service, monkeypatch, lacks
):
    if lacks == "user":
        monkeypatch.setattr("pwd.getpwnam", {}.__getitem__)
    else:
        service.rmdir()
    assert SERVICE not in usual(service / "infer.sock")


def test_the_overflow_uid_has_to_be_given_explicitly(monkeypatch):
    monkeypatch.setattr(os, "geteuid", overflow_uid)
    assert usual() == {0}
    assert usual(named=[overflow_uid()]) == {0, overflow_uid()}
    pair = socket.socketpair()
    with pair[0], pair[1]:
        monkeypatch.setattr(peer_check, "overflow_uid", os.getuid)
        with pytest.raises(UntrustedServerError, match="not mapped into this user"):
            PeerCheck(Path("/x"), frozenset()).check_server(pair[0])


def test_without_proc_that_uid_is_the_usual_one(monkeypatch, tmp_path):
    monkeypatch.setattr(peer_credentials, "_OVERFLOW_UID", tmp_path / "none")
    assert overflow_uid() == 65534


def test_the_way_to_a_socket_leads_there_whatever_its_path_names_by_then(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "infer.sock").write_text("looked at")
    (tmp_path / "link").symlink_to("infer.sock")
    (tmp_path / "to").symlink_to(".")
    for path in ("infer.sock", "link", "to/link"):
        with PeerCheck.for_socket(tmp_path / path).checked_path() as way:
            (tmp_path / "infer.sock").rename(tmp_path / "kept")
            assert Path(way).read_text() == "looked at"
            (tmp_path / "kept").rename(tmp_path / "infer.sock")
        assert not Path(way).exists()


def test_without_proc_the_way_is_the_path(monkeypatch, tmp_path):
    monkeypatch.setattr(peer_check, "_DESCRIPTORS", tmp_path / "none")
    tmp_path.chmod(0o755)
    (tmp_path / "infer.sock").touch()
    with PeerCheck.for_socket(tmp_path / "infer.sock").checked_path() as way:
        assert way == str(tmp_path / "infer.sock")


@each_case(
    ("words", "uids"),
    [("", set()), ("0", {0}), ("1000, 65534", {1000, 65534}), (",7,", {7})],
)
def test_uids_are_named_in_a_list(words, uids):
    assert trusted_uids_from({"INFERD_TRUST_UID": words}) == uids


@each_case("words", ["ada", "-1", "1 2", "0x1", "²", "1;2", "9" * 5000])
def test_what_is_no_list_of_uids_is_refused(words):
    with pytest.raises(ClientError, match="INFERD_TRUST_UID"):
        trusted_uids_from({"INFERD_TRUST_UID": words})


def test_an_error_names_the_socket_the_uid_and_what_to_do():
    error = UntrustedServerError(Path("/a/infer.sock"), OTHER, "somebody listens")
    assert (error.path, error.uid) == (Path("/a/infer.sock"), OTHER)
    assert str(error) == (
        "/a/infer.sock: somebody listens; nothing was sent. "
        f"To trust this uid, set INFERD_TRUST_UID={OTHER}"
    )
