"""Changes of workers that are forks of tests: the same work, and less of it."""

import threading
from importlib import import_module
from typing import Any, Final

from tests.daemon.forked_workers import CHANGE

HEARS_LITTLE: Final = {CHANGE: f"{__name__}:hear_little"}
"""In the environment of a daemon: its workers encode sound for half of the time."""
COMPILES_BRIEFLY: Final = {CHANGE: f"{__name__}:compile_briefly"}
"""And this: its preparers give up a grammar after a tenth of the time."""
HANGS: Final = {CHANGE: f"{__name__}:hang_after_a_chunk"}
"""And this: its workers never hear the second half minute of a recording."""

N_POSITIONS: Final = 768
"""Of the encoder, each of 20 ms: fifteen seconds, and the recorded clip has eleven."""


def hear_little() -> None:
    """Have whisper.cpp encode the first fifteen of each thirty seconds alone."""
    inference: Any = import_module("inferd.worker.whisper.transcribe.inference")
    options = inference.InferenceOptions
    assert options._fields[-1] == "audio_ctx"
    options.__new__.__defaults__ = (*options.__new__.__defaults__[:-1], N_POSITIONS)


def hang_after_a_chunk() -> None:
    """Have whisper.cpp wait for ever before it encodes once more in a call."""
    call: Any = import_module("inferd.worker.whisper.transcribe.inference")._Call
    begin = call._on_chunk

    def on_chunk(self: Any, *arguments: object) -> object:
        goes_on = begin(self, *arguments)
        if self._n_chunks > 1:
            threading.Event().wait()
        return goes_on

    call._on_chunk = on_chunk


def compile_briefly() -> None:
    """Have grammars of which none compiles end sooner."""
    limits: Any = import_module("inferd.limits.worker")
    errors: Any = import_module("inferd.worker.llama.grammar.errors")
    limits.GRAMMAR_COMPILE_S /= 10
    errors.GRAMMAR_ERROR_S /= 10
