import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from inferd import app
from inferd.cli.commands.serve import (
    add_arguments,
    config_reader,
    first_starts,
    locate_models,
    run,
    without_ladders,
)
from inferd.cli.console import EXIT_ERROR
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.registry import KindRegistry
from inferd.config.parse import parse_config
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.engine.supervisor.spawn import SpawnedProcess
from tests.fakes.memory_coordinator import DEMAND


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def mock_config(directory, *names: str) -> str:
    backends = "".join(
        f'[[backend]]\nname = "{name}"\nkind = "mock"\n' for name in names or ("a",)
    )
    return f'[listen]\ndirectory = "{directory}"\n{backends}'


def test_defaults_are_the_default_paths_and_the_configured_level():
    arguments = parse()
    assert (arguments.config, arguments.model) == (None, None)
    assert arguments.log_level is None


def test_a_log_level_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse("--log-level", "loud")


def test_a_worker_gets_the_load_message_of_its_backend():
    table = '[[backend]]\nname = "{}"\nkind = "mock"\n'
    config = parse_config(
        "[admission]\nmax_active = 3\n" + table.format("a") + table.format("b")
    )
    loads = [start.load for start in first_starts(config, locate_models(config))]
    assert [load.settings for load in loads] == [
        MockSettings(name="a"),
        MockSettings(name="b"),
    ]
    assert {load.n_slots for load in loads} == {3}


def test_a_model_that_was_not_brought_stops_the_start_before_any_worker(inferd):
    with pytest.raises(ConfigError, match="inferd model pull embedded:chat"):
        locate_models(parse_config(""))


def test_without_a_ladder_nothing_is_chosen():
    config = parse_config("")
    assert without_ladders(config) == (config, {})


def test_the_model_of_a_ladder_is_chosen_within_the_budget(monkeypatch, tmp_path):
    def predict_demand(_program, settings, _n_slots, _limits):
        return replace(DEMAND, weights=len(settings.model) * 2**20, own=0)

    monkeypatch.setattr("inferd.engine.ladder.predict_demand", predict_demand)
    config = parse_config(
        f"[memory]\nbudget = {100 * 2**20}\n[[backend]]\nname = 'a'\n"
        f"kind = 'llamacpp'\nmodel = 'auto'\nladder = ['/{'x' * 999}', '/small']\n"
    )
    chosen, choices = without_ladders(config)
    assert chosen.backend == (LlamaCppSettings(name="a", model="/small"),)
    assert chosen.memory == config.memory
    assert choices["a"].startswith("/small, 2 of 2 in its ladder: it needs ")


@pytest.mark.slow
def test_workers_start_before_the_daemon_and_end_after_it(short_dir, monkeypatch):
    config = short_dir / "config.toml"
    config.write_text('[[backend]]\nname = "a"\nkind = "mock"\n')
    seen: list[SpawnedProcess] = []

    def run_daemon(
        _: Config,
        backends: Sequence[BackendSettings],
        early: Mapping[str, SpawnedProcess],
        *__: object,
        refusal: str,
        choices: Mapping[str, str],
        kinds: KindRegistry,
    ):
        assert ([each.name for each in backends], refusal) == (["a"], "")
        assert [*early] == ["a"]
        seen.extend(early.values())
        assert seen[0].popen.returncode is None
        return False

    monkeypatch.setattr(app, "run_daemon", run_daemon)
    assert run(parse("--config", str(config))) == EXIT_ERROR
    assert not Path(f"/proc/{seen[0].popen.pid}").exists()


def test_what_takes_long_to_import_is_left_until_workers_are_started():
    code = "import inferd.cli.commands.serve, sys; print({'trio', 'structlog'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_model_on_the_command_line_is_served_alone(inferd, short_dir):
    code, _, stderr = inferd("serve", "--model", "embedded:nothing")
    assert code == 2
    assert "embedded:nothing: no such model" in stderr


def test_the_same_file_is_read_again_even_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("INFERD_CONFIG", raising=False)
    usual = [tmp_path / "user.toml", tmp_path / "system.toml"]
    monkeypatch.setattr("inferd.config.load.config_files", lambda: usual)
    for file in usual:
        file.write_text(mock_config(tmp_path, file.stem))
    read = config_reader(None, None)
    assert read().backend[0].name == "user"
    usual[0].unlink()
    with pytest.raises(ConfigError, match=f"{usual[0]}: .*No such file"):
        read()


def test_a_file_that_comes_later_is_read_where_there_was_none(tmp_path, monkeypatch):
    monkeypatch.delenv("INFERD_CONFIG", raising=False)
    usual = tmp_path / "user.toml"
    monkeypatch.setattr("inferd.config.load.config_files", lambda: [usual])
    read = config_reader(None, None)
    assert read() == parse_config("")
    usual.write_text(mock_config(tmp_path, "mine"))
    assert read().backend[0].name == "mine"
