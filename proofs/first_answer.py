"""From nothing to an answer: a model is pulled, served and asked, in three commands."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from inferd.client.sync import wait_until_ready
from inferd.config.find_model import find_model
from inferd.config.settings import ConfigError
from inferd.models.embedded import CHAT
from inferd.paths import model_stores, runtime_directory
from tests.daemon.configuration import clean_environ
from tests.fakes.hub import running_hub
from torture.outcome import Context, SkippedError, rounded

KEY: Final = "first-answer"
NAME: Final = "From nothing to an answer"

REPOSITORY: Final = "me/sample-GGUF"
QUESTION: Final = "What is the capital of France? Answer in English."
ANSWER: Final = "Paris"
PULL: Final = ("model", "pull", f"hf:{REPOSITORY}", "--name", "me/sample")
SERVE: Final = ("serve", "--model", "me/sample")
GENERATE: Final = ("generate", "--model", "chat", "--temperature", "0", QUESTION)
OURS: Final = ("XDG_", "HF_", "INFERD_MODELS", "INFERD_CACHE_DIR")
"""How variables begin that would say where models are."""
READY_S: Final = 300.0
END_S: Final = 60.0


def run(context: Context) -> None:
    """Type three commands in an empty home directory, and read an answer."""
    model = embedded_chat()
    for command in (PULL, SERVE, GENERATE):
        context.notes.append(f"`inferd {shlex.join(command)}`")
    with running_hub() as hub, TemporaryDirectory(prefix="first-") as home:
        hub.add_repository(REPOSITORY, {CHAT.file_name: model.read_bytes()})
        runtime = Path(home, "run")
        runtime.mkdir(mode=0o700)
        inherited = clean_environ().items()
        environ = {
            **{name: text for name, text in inherited if not name.startswith(OURS)},
            "HOME": home,
            "XDG_RUNTIME_DIR": str(runtime),
            "HF_ENDPOINT": hub.endpoint,
            "SSL_CERT_FILE": str(hub.ca_file),
        }
        context.figures["load_average"] = round(os.getloadavg()[0], 1)
        context.figures["model_bytes"] = model.stat().st_size
        _type_commands(context, environ)


def embedded_chat() -> Path:
    """Find the file of the embedded chat model.

    Raises:
        SkippedError: it is in no store.
    """
    try:
        found = find_model(CHAT.reference, stores=model_stores())
    except ConfigError as error:
        raise SkippedError(f"{error}; make setup brings it") from error
    if found is None:
        raise SkippedError(f"{CHAT.reference} is a file")
    return Path(found.model.path)


def _type_commands(context: Context, environ: Mapping[str, str]) -> None:
    began = time.monotonic()
    _run(PULL, environ)
    pulled = time.monotonic()
    with subprocess.Popen(
        _program(SERVE), env=environ, stderr=subprocess.DEVNULL
    ) as daemon:
        try:
            wait_until_ready(runtime_directory(environ), timeout_s=READY_S)
            ready = time.monotonic()
            answer = _run(GENERATE, environ)
            answered = time.monotonic()
        finally:
            daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(END_S)
    context.require(ANSWER in answer, f"the answer is {answer!r}")
    context.require(code == 0, f"the daemon ended with {code}")
    context.counts["commands"] = 3
    context.figures |= {
        "pull_ms": rounded(pulled - began),
        "until_ready_ms": rounded(ready - pulled),
        "answer_ms": rounded(answered - ready),
        "total_ms": rounded(answered - began),
    }


def _run(command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        _program(command), env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


def _program(command: tuple[str, ...]) -> list[str]:
    inferd = Path(sys.executable).with_name("inferd")
    return [os.fspath(inferd), *command]
