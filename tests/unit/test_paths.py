import os
from pathlib import Path

import pytest

from inferd.paths import (
    cache_directory,
    client_directories,
    config_files,
    log_directory,
    models_directory,
    runtime_directory,
)
from tests.cases import each_case

HOME = {"HOME": "/home/ada"}


@each_case(
    ("environ", "directory"),
    [
        (
            {
                **HOME,
                "XDG_RUNTIME_DIR": "/run/user/1",
                "RUNTIME_DIRECTORY": "/run/a:/b",
            },
            "/run/a",
        ),
        ({**HOME, "XDG_RUNTIME_DIR": "/run/user/1"}, "/run/user/1/inferd"),
        (HOME, "/home/ada/.inferd/run"),
        (
            {"RUNTIME_DIRECTORY": "", "XDG_RUNTIME_DIR": "", **HOME},
            "/home/ada/.inferd/run",
        ),
        ({}, f"/tmp/inferd-{os.getuid()}"),  # noqa: S108  # only compared
    ],
)
def test_sockets_are_in_the_first_directory_that_is_set(environ, directory):
    assert runtime_directory(environ) == Path(directory)


def test_a_client_tries_the_user_s_directory_before_the_system_s():
    assert client_directories({"XDG_RUNTIME_DIR": "/run/user/1"}) == [
        Path("/run/user/1/inferd"),
        Path("/run/inferd"),
    ]


def test_a_client_tries_no_directory_twice():
    assert client_directories({"XDG_RUNTIME_DIR": "/run"}) == [Path("/run/inferd")]


@each_case(
    ("environ", "own"),
    [
        ({**HOME, "XDG_CONFIG_HOME": "/etc/ada"}, "/etc/ada/inferd/config.toml"),
        (HOME, "/home/ada/.config/inferd/config.toml"),
        ({**HOME, "XDG_CONFIG_HOME": ""}, "/home/ada/.config/inferd/config.toml"),
        ({}, "/.config/inferd/config.toml"),
    ],
)
def test_the_users_configuration_comes_before_the_systems(environ, own):
    assert config_files(environ) == [Path(own), Path("/etc/inferd/config.toml")]


@each_case(
    ("environ", "directory"),
    [
        (
            {**HOME, "CACHE_DIRECTORY": "/var/cache/a", "INFERD_CACHE_DIR": "/models"},
            "/models",
        ),
        (
            {**HOME, "XDG_CACHE_HOME": "/c", "CACHE_DIRECTORY": "/var/cache/a:/b"},
            "/var/cache/a",
        ),
        ({**HOME, "XDG_CACHE_HOME": "/c"}, "/c/inferd"),
        (HOME, "/home/ada/.cache/inferd"),
        ({}, "/.cache/inferd"),
    ],
)
def test_models_are_in_the_first_cache_that_there_is(environ, directory):
    assert cache_directory(environ) == Path(directory)


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, "/somewhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    monkeypatch.setenv("INFERD_CACHE_DIR", "/somewhere")
    assert runtime_directory() == cache_directory() == Path("/somewhere")
    assert client_directories()[0] == Path("/somewhere")
    assert config_files()[0] == Path("/somewhere/inferd/config.toml")


@each_case(
    ("environ", "directory"),
    [
        ({**HOME, "INFERD_LOG_DIR": "/logs", "LOGS_DIRECTORY": "/b"}, Path("/logs")),
        ({**HOME, "LOGS_DIRECTORY": "/var/log/a:/b"}, Path("/var/log/a")),
        ({**HOME, "LOGS_DIRECTORY": ""}, Path("/home/ada/.inferd/logs")),
        ({**HOME, "INFERD_LOG_DIR": ""}, None),
        ({}, None),
    ],
)
def test_the_log_is_in_the_first_directory_that_is_set(environ, directory):
    assert log_directory(environ) == directory


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({**HOME, "INFERD_MODELS": "/m", "XDG_DATA_HOME": "/d"}, "/m"),
        ({**HOME, "INFERD_MODELS": "", "XDG_DATA_HOME": "/d"}, "/d/inferd/models"),
        (HOME, "/home/ada/.local/share/inferd/models"),
    ],
)
def test_models_are_in_the_first_directory_that_is_set(environ, directory):
    assert models_directory(environ) == Path(directory)
