import json
import tomllib

import pytest

from inferd.config.parse import parse_config
from inferd.limits.connections import IDLE_S

TEXT = (
    "[limits]\ndrain_s = 3\n[access]\ninfer = {uids = [5]}\n"
    "[[backend]]\nkind = 'mock'\nname = 'mA'\ntokens = ['a']\n"
)


@pytest.fixture
def file(short_dir):
    path = short_dir / "c.toml"
    path.write_text(TEXT)
    return path


def test_all_settings_are_shown_with_their_sources(inferd, file, short_dir):
    code, stdout, stderr = inferd("config", "show", "--config", file)
    assert (code, stderr) == (0, "")
    lines = stdout.splitlines()
    assert lines[0] == f"# the file is {file}"
    for line in (
        f'# directory = "{short_dir}/.inferd/run"  # now: $HOME',
        f"infer = {{uids = [5], gids = []}}  # {file}",
        "# admin is not set  # default",
        f"drain_s = 3.0  # {file}",
        f"idle_s = {IDLE_S!r}  # default",
        "[[backend]]",
        f'kind = "mock"  # {file}',
        f'name = "mA"  # {file}',
        f'tokens = ["a"]  # {file}',
        "vision = false  # default",
    ):
        assert line in lines


def test_what_is_shown_is_the_same_configuration(inferd, file):
    shown = inferd("config", "show", "--config", file).stdout
    assert parse_config(shown) == parse_config(TEXT)


def test_without_a_file_all_is_default(inferd):
    lines = inferd("config", "show").stdout.splitlines()
    assert lines[0] == "# there is no file: all is default"
    assert 'model = "embedded:chat"  # default' in lines
    assert tomllib.loads("\n".join(lines))["backend"][0]["name"] == "chat"


def test_what_follows_from_the_machine_is_shown_as_it_is_now(
    inferd, file, short_dir, monkeypatch
):
    monkeypatch.setattr("inferd.server.capacity.available_bytes", lambda: 2**30)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    found = json.loads(inferd("config", "show", "--config", file, "--json").stdout)
    settings = {
        (each["table"], each["key"]): (each["value"], each["source"])
        for each in found["settings"]
    }
    assert found["file"] == str(file)
    assert settings["memory", "budget"][0] == 2**30 - 536_870_912
    assert settings["listen", "directory"] == (
        f"{short_dir}/inferd",
        "now: $XDG_RUNTIME_DIR",
    )
    assert settings["log", "directory"][1] == "now: $INFERD_LOG_DIR"
    assert settings["backend[0]", "kind"] == ("mock", str(file))
    assert settings["access", "admin"] == (None, "default")


def test_a_configuration_that_cannot_be_used_is_an_error(inferd, file):
    file.write_text("no = 1\n")
    code, _, stderr = inferd("config", "show", "--config", file)
    assert (code, stderr.endswith("hint: inferd config check\n")) == (2, True)
