import os
import socket
from pathlib import Path

import pytest

from inferd.client import trust
from inferd.client.exchange import ClientError
from inferd.client.trust import Trust, UntrustedServerError, named_uids, overflow_uid

OTHER = 64_321
SERVICE = 64_322


@pytest.fixture
def service(monkeypatch, tmp_path):
    """Have a service of a user of its own, with its sockets in a directory of root's."""
    (tmp_path / "run").mkdir()
    entry = type("Entry", (), {"pw_uid": SERVICE})
    monkeypatch.setattr(trust, "SYSTEM_DIRECTORY", tmp_path / "run")
    monkeypatch.setattr("pwd.getpwnam", {"inferd": entry}.__getitem__)
    monkeypatch.setattr(trust, "ROOT_UID", os.geteuid())
    return tmp_path / "run"


def usual(path="/nowhere/infer.sock", named=()):
    return Trust.at(Path(path), named).uids


def test_root_and_oneself_may_answer_and_who_is_named(monkeypatch):
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
def test_without_a_service_nobody_more_may_answer(service, monkeypatch, lacks):
    if lacks == "user":
        monkeypatch.setattr("pwd.getpwnam", {}.__getitem__)
    else:
        service.rmdir()
    assert SERVICE not in usual(service / "infer.sock")


def test_the_uid_of_all_who_are_not_mapped_has_to_be_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", overflow_uid)
    assert usual() == {0}
    assert usual(named=[overflow_uid()]) == {0, overflow_uid()}
    pair = socket.socketpair()
    with pair[0], pair[1]:
        monkeypatch.setattr(trust, "overflow_uid", os.getuid)
        with pytest.raises(UntrustedServerError, match="not mapped into this user"):
            Trust(Path("/x"), frozenset()).check_server(pair[0])


def test_without_proc_that_uid_is_the_usual_one(monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "_OVERFLOW_UID", tmp_path / "none")
    assert overflow_uid() == 65534


def test_the_way_to_a_socket_leads_there_whatever_its_path_names_by_then(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "infer.sock").write_text("looked at")
    (tmp_path / "link").symlink_to("infer.sock")
    (tmp_path / "to").symlink_to(".")
    for path in ("infer.sock", "link", "to/link"):
        with Trust.at(tmp_path / path).held() as way:
            (tmp_path / "infer.sock").rename(tmp_path / "kept")
            assert Path(way).read_text() == "looked at"
            (tmp_path / "kept").rename(tmp_path / "infer.sock")
        assert not Path(way).exists()


def test_without_proc_the_way_is_the_path(monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "_DESCRIPTORS", tmp_path / "none")
    tmp_path.chmod(0o755)
    (tmp_path / "infer.sock").touch()
    with Trust.at(tmp_path / "infer.sock").held() as way:
        assert way == str(tmp_path / "infer.sock")


@pytest.mark.parametrize(
    ("words", "uids"),
    [("", set()), ("0", {0}), ("1000, 65534", {1000, 65534}), (",7,", {7})],
)
def test_uids_are_named_in_a_list(words, uids):
    assert named_uids({"INFERD_TRUST_UID": words}) == uids


@pytest.mark.parametrize("words", ["ada", "-1", "1 2", "0x1", "²", "1;2", "9" * 5000])
def test_what_is_no_list_of_uids_is_refused(words):
    with pytest.raises(ClientError, match="INFERD_TRUST_UID"):
        named_uids({"INFERD_TRUST_UID": words})


def test_an_error_names_the_socket_the_uid_and_what_to_do():
    error = UntrustedServerError(Path("/a/infer.sock"), OTHER, "somebody listens")
    assert (error.path, error.uid) == (Path("/a/infer.sock"), OTHER)
    assert str(error) == (
        "/a/infer.sock: somebody listens; nothing was sent. "
        f"To trust this uid, set INFERD_TRUST_UID={OTHER}"
    )
