"""A library with variants of its CPU code, one of which does not survive this processor."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.settings import LimitSettings
from inferd.doctor.backend import check_worker
from inferd.doctor.check import Verdict
from inferd.doctor.memory import forecast
from inferd.memory.plan import MemoryBudget, MemoryDemand, MemoryShare
from tests.daemon.harness import MakeDaemon, llamacpp
from tests.fakes.starting import program_of

pytestmark = [pytest.mark.model, pytest.mark.slow]

BROKEN = """
#include <signal.h>
int ggml_backend_score(void) { return 1 << 20; }
void *ggml_backend_init(void) { raise(SIGNAL); return 0; }
"""


BROKEN_AT_OPENING = """
#include <signal.h>
__attribute__((constructor)) static void crash(void) { raise(SIGNAL); }
"""


def add_broken(directory: Path, signal: str, code: str = BROKEN) -> None:
    """Compile a variant that promises the most and dies as it is loaded, or as it is opened."""
    compiler = shutil.which("cc")
    assert compiler
    output = directory / "libggml-cpu-broken.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-DSIGNAL={signal}", "-xc", "-", "-o", output],
        input=code,
        text=True,
        check=True,
    )


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A directory with the libraries that are installed."""
    package = find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    for path in (Path(package.origin).parent / "lib").glob("*.so*"):
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def environ(libraries: Path) -> dict[str, str]:
    return {"LLAMA_CPP_LIB_PATH": str(libraries)}


@pytest.mark.parametrize("signal", ["SIGILL", "SIGSEGV", "SIGABRT"])
def test_a_daemon_steps_down_from_a_variant_that_crashes_and_says_so(
    make_daemon: MakeDaemon, tiny_q8_0, libraries, signal
):
    add_broken(libraries, signal)
    config = {"backend": [llamacpp(tiny_q8_0)]}
    daemon = make_daemon(config, environ=environ(libraries)).start()
    assert daemon.ask(max_tokens=4)[-1]["type"] == "done"
    used = daemon.admin().frame()["cpu_variant"]
    [line] = daemon.logged(msg="worker.stepped_down")
    assert line["reason"].startswith(f"killed by {signal}")
    assert (line["crashed"], line["lower"]) == ("broken", used)
    assert line["level"] == "warn"


def test_a_variant_that_crashes_as_it_is_opened_is_left_out(
    make_daemon: MakeDaemon, tiny_q8_0, libraries
):
    add_broken(libraries, "SIGILL", BROKEN_AT_OPENING)
    config = {"backend": [llamacpp(tiny_q8_0)]}
    daemon = make_daemon(config, environ=environ(libraries)).start()
    assert daemon.ask(max_tokens=4)[-1]["type"] == "done"
    assert daemon.admin().frame()["cpu_variant"] != "broken"
    [line] = daemon.logged(msg="worker.stepped_down")
    assert (line["crashed"], line["lower"]) == ("broken", "")


def test_where_every_variant_crashes_the_start_fails_with_the_signal(
    make_daemon: MakeDaemon, tiny_q8_0, libraries
):
    for path in libraries.glob("libggml-cpu-*.so"):
        path.unlink()
    add_broken(libraries, "SIGILL")
    config = {"backend": [llamacpp(tiny_q8_0)]}
    refusal = make_daemon(config, environ=environ(libraries)).refusal()
    assert refusal.endswith("backend chat: killed by SIGILL; run: inferd doctor")


def test_a_variant_may_be_named_and_is_then_the_only_one(
    make_daemon: MakeDaemon, tiny_q8_0, libraries
):
    add_broken(libraries, "SIGILL")
    named = make_daemon(
        {"backend": [llamacpp(tiny_q8_0, cpu_variant="x64")]},
        environ=environ(libraries),
    ).start()
    assert named.admin().frame()["cpu_variant"] == "x64"
    assert named.ask(max_tokens=4)[-1]["type"] == "done"
    broken = make_daemon(
        {"backend": [llamacpp(tiny_q8_0, cpu_variant="broken")]},
        environ=environ(libraries),
    )
    assert "killed by SIGILL" in broken.refusal()


def test_the_doctor_has_a_word_for_it(monkeypatch, tiny_q8_0, libraries):
    def take_all(demand: MemoryDemand) -> MemoryShare:
        return MemoryShare(n_slots=1, n_ctx=demand.n_ctx)

    add_broken(libraries, "SIGILL")
    monkeypatch.setenv(*environ(libraries).popitem())
    settings = LlamaCppSettings(name="chat", model=str(tiny_q8_0), n_threads=1)
    finding = check_worker(
        program_of(settings), settings, LimitSettings(load_silence_s=20), take_all
    )
    assert finding.verdict is Verdict.WARNING
    assert finding.detail.startswith("broken crashed and is not used; llama-cpp-python")


def test_the_doctor_knows_the_memory_of_what_is_used_instead(
    monkeypatch, tiny_q8_0, libraries
):
    add_broken(libraries, "SIGILL")
    monkeypatch.setenv(*environ(libraries).popitem())
    settings = LlamaCppSettings(name="chat", model=str(tiny_q8_0), n_threads=1)
    budget = MemoryBudget(n_bytes=2**34, n_slots=1, slots_are_set=False)
    found = forecast(
        [(program_of(settings), settings)], budget, LimitSettings(load_silence_s=20)
    )
    assert found.failures == {}
    assert found.plan is not None
