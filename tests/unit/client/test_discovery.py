from itertools import islice
from pathlib import Path

from inferd.client.discovery import (
    NoDaemonError,
    backoff,
    no_daemon_error,
    socket_paths,
)
from inferd.client.peer_check import UntrustedServerError


def test_a_given_directory_is_the_only_one_tried():
    assert socket_paths("admin.sock", Path("/here")) == [Path("/here/admin.sock")]


def test_a_daemon_of_ones_own_comes_before_the_systems(monkeypatch):
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert socket_paths("infer.sock") == [
        Path("/run/user/1/inferd/infer.sock"),
        Path("/run/inferd/infer.sock"),
    ]


def test_pauses_double_up_to_a_bound():
    assert list(islice(backoff(), 8)) == [
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5),
    ]


def test_the_error_names_every_path_and_its_reason():
    refused = ConnectionRefusedError(111, "Connection refused")
    error = no_daemon_error({Path("/a"): refused, Path("/b"): OSError("path too long")})
    assert isinstance(error, NoDaemonError)
    assert str(error) == (
        "no daemon answers at /a (Connection refused), nor at /b (path too long)"
    )


def test_an_untrusted_server_takes_precedence_over_a_missing_one():
    refused = UntrustedServerError(Path("/b"), 5, "somebody listens")
    assert (
        no_daemon_error({Path("/a"): FileNotFoundError(), Path("/b"): refused})
        is refused
    )
