"""The tests of llama.cpp's own server, in front of the bridge."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from bench.peers.llama_server import free_port
from bench.peers.source import version
from inferd.models.embedded import CHAT
from proofs.server_suite import plugin, shim, sources
from proofs.server_suite.expected import FILES, LEFT_OUT, ONE_FORM
from proofs.server_suite.keeper import Keeper, running_keeper
from proofs.server_suite.tally import Result, note, tally, unused
from torture.outcome import Context, Size

KEY: Final = "llama-server"
NAME: Final = "The tests of llama.cpp's server, in front of the bridge"
ROOT: Final = Path(__file__).resolve().parents[1]
SHORT: Final = (
    "unit/test_rerank.py::test_rerank_tei_format",
    "unit/test_security.py::test_incorrect_api_key",
    "unit/test_security.py::test_openai_library_correct_api_key",
    "unit/test_chat_completion.py::test_completion_with_grammar",
    "unit/test_chat_completion.py::test_chat_completion_with_openai_library",
    "unit/test_tokenize.py::test_tokenize_with_bos",
)
SUITE_S: Final = 1800.0
"""Seconds that the suite may take."""
TAIL_CHARS: Final = 600
"""Of what pytest wrote, if it could not run the cases."""


def run(context: Context) -> None:
    """Run the cases; what differs has to be known, and nothing else may fail."""
    selected = context.pick(
        short=SHORT, full=[f"unit/test_{name}.py" for name in FILES]
    )
    with TemporaryDirectory(prefix="suite-") as scratch:
        suite = Path(scratch, "suite")
        lacking = sources.copy_suite(sources.fetched_suite(), suite)
        with running_keeper(Path(scratch)) as keeper:
            results = _run_cases(suite, selected, keeper)
        context.counts["daemons"] = keeper.n_started
    found = tally(results, lacking)
    context.problems += found.problems
    if context.size is Size.FULL:
        context.problems += [f"no case is called {name}" for name in unused(results)]
    context.counts |= {"cases": len(results), **found.counts}
    context.notes.append(
        f"The cases of llama-cpp-python {version()}; the model is `{CHAT.reference}`"
    )
    for reason in dict.fromkeys(each.reason for each in LEFT_OUT):
        fragments = {each.fragment: 0 for each in LEFT_OUT if each.reason == reason}
        words = ", ".join(f"`{each}`" for each in fragments)
        context.notes.append(f"Not compared: {words}: {reason}")
    context.notes += [note(*each) for each in found.differing.items()]


def _run_cases(
    suite: Path, selected: Sequence[str], keeper: Keeper
) -> Sequence[Result]:
    """Run cases in a process of their own.

    Raises:
        AssertionError: they could not be run.
    """
    lines = suite.parent / "results"
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PORT": str(free_port()),
        "LLAMA_SERVER_BIN_PATH": str(_write_program(suite.parent / "llama-server")),
        shim.KEEPER: str(keeper.path),
        plugin.KEY: keeper.key,
        plugin.RESULTS: str(lines),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", plugin.__name__),
            *("-p", "no:cacheprovider", "--basetemp", str(suite.parent / "tmp")),
            *("-m", "not slow", "-k", ONE_FORM),
            *selected,
        ],
        cwd=suite,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    words = (done.stdout + done.stderr)[-TAIL_CHARS:]
    if not lines.exists():
        raise AssertionError(f"no case has run: {words}")
    return [
        msgspec.json.decode(line, type=Result)
        for line in lines.read_bytes().splitlines()
    ]


def _write_program(path: Path) -> Path:
    """Write a program that takes the place of the other server."""
    path.write_text(f"#!{sys.executable}\nfrom {shim.__name__} import main\nmain()\n")
    path.chmod(0o700)
    return path
